# SPDX-License-Identifier: Apache-2.0
"""What is made from something else, and committed, is what would be made today."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from broker_core.base.settings import Settings
from broker_core.cli.settings_sources import ORIGIN_DEFAULT, declared, resolve
from broker_core.wire.proto import pulsar_api_pb2
from scripts.generate_docs import REPOSITORY, generated
from scripts.generate_proto import GENERATED, PROTO_DIR, describe, generate
from scripts.profiles import PROFILES, Profile


@pytest.mark.parametrize("path", generated())
def test_documents_agree_with_the_code(path: str) -> None:
    """``make docs`` would change nothing."""
    assert (REPOSITORY / path).read_text(encoding="utf-8") == generated()[path]


def test_options_in_common_are_told_once() -> None:
    """docs/cli.md does not repeat those that choose a broker, or the form of output, for each command."""
    page = generated()["docs/cli.md"]
    for option in ("`--http-url ", "`--token-file ", "`--tls-key-file-path ", "`-o`, `--output table"):
        assert page.count(f"| {option}") == 1, option


def test_protocol_code_agrees_with_the_proto_file() -> None:
    """The committed module describes exactly the messages of the committed proto file."""
    compiled = FileDescriptorSet.FromString(describe()).file[0]
    committed = FileDescriptorProto.FromString(pulsar_api_pb2.DESCRIPTOR.serialized_pb)
    assert _without_json_names(compiled) == _without_json_names(committed)


def _without_json_names(file: FileDescriptorProto) -> list[str]:
    """The description as text; names for JSON are filled in by some ways of making it only."""
    return [line for line in str(file).splitlines() if "json_name:" not in line]


def test_protocol_files_are_what_the_generator_writes(tmp_path: Path) -> None:
    """``make proto`` would change nothing, as far as the generator is the version that wrote the committed files."""
    generate(tmp_path)
    if _generator(tmp_path) != _generator(PROTO_DIR):
        pytest.skip("another version of the generator is installed; its layout may differ")
    for name in GENERATED:
        assert (tmp_path / name).read_text(encoding="utf-8") == (PROTO_DIR / name).read_text(encoding="utf-8")


def _generator(folder: Path) -> str:
    lines = (folder / "pulsar_api_pb2.py").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("# Protobuf Python Version"))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_sets_what_it_says_and_leaves_the_rest(profile: Profile) -> None:
    """Each file of conf/ is read as by the broker: its values arrive, everything else keeps its default."""
    file = REPOSITORY / "conf" / f"{profile.name}.toml"
    resolved = resolve(file=file, env={}, assignments=())
    for name, setting in declared().items():
        value = getattr(resolved.settings, setting.field)
        assert value == (profile.values[name][0] if name in profile.values else getattr(Settings(), setting.field))
        assert resolved.origins[name] == (f"file {file}" if name in profile.values else ORIGIN_DEFAULT)
