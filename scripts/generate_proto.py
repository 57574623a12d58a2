# SPDX-License-Identifier: Apache-2.0
"""Generates the protocol code from ``pulsar_api.proto``: ``make proto``. A test compares what is committed with it."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

PROTO_DIR: Final = Path(__file__).resolve().parents[1] / "broker_core" / "wire" / "proto"
GENERATED: Final = ("pulsar_api_pb2.py", "pulsar_api_pb2.pyi")


def generate(target: Path) -> None:
    """Write both generated files into ``target``."""
    _protoc(f"--python_out={target}", f"--pyi_out={target}")


def describe() -> bytes:
    """The compiled form of ``pulsar_api.proto`` (a serialised FileDescriptorSet)."""
    with tempfile.NamedTemporaryFile() as file:
        _protoc(f"--descriptor_set_out={file.name}")
        return Path(file.name).read_bytes()


def _protoc(*outputs: str) -> None:
    from grpc_tools import protoc

    well_known = files("grpc_tools") / "_proto"
    if protoc.main(["protoc", f"--proto_path={PROTO_DIR}", f"--proto_path={well_known}", *outputs, "pulsar_api.proto"]):
        sys.exit("protoc refused pulsar_api.proto; its words are above")


if __name__ == "__main__":
    generate(PROTO_DIR)
