# SPDX-License-Identifier: Apache-2.0
"""The core compiled with AddressSanitizer, which ends a process at its first read or write outside of an object."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = "-fsanitize=address -fno-omit-frame-pointer"
HEAD = "import random\nfrom broker_core.wire import core\nassert core.COMPILED and core.__file__.startswith({!r})\n"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_watched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Runs code over a watched copy of the core; what it printed, with "in bounds" behind."""
    sanitizer = _sanitizer()
    if sanitizer is None:
        pytest.skip("AddressSanitizer is not installed: it comes with gcc")
    folder = tmp_path_factory.mktemp("watched")
    shutil.copytree(ROOT / "broker_core", folder / "broker_core", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "tests").symlink_to(ROOT / "tests")
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": FLAGS, "PYTHONPATH": str(folder)}
    _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], folder, environment)
    environment |= {
        "LD_PRELOAD": sanitizer,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide where an object ends
    }
    script = folder / "watched.py"

    def run(code: str) -> str:
        script.write_text(HEAD.format(str(folder)) + textwrap.dedent(code) + 'print("in bounds")\n')
        return _run([sys.executable, str(script)], folder, environment)

    return run


def _sanitizer() -> str | None:
    if shutil.which("gcc") is None:
        return None
    found = _run(["gcc", "-print-file-name=libasan.so"], ROOT, dict(os.environ)).strip()
    return found if os.path.isabs(found) else None


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def test_a_read_behind_the_end_is_noticed(run_watched: Callable[[str], str]) -> None:
    """The watching itself: a kernel that is told of more bytes than there are."""
    code = """
    import numpy as np
    from broker_core.wire.core.entries import copy_values
    copy_values(np.zeros(64, np.uint8), np.array([0, 0, 5000], np.int32), np.zeros(5000, np.uint8))
    """
    with pytest.raises(AssertionError, match="AddressSanitizer: heap-buffer-overflow"):
        run_watched(code)


def test_compiled_kernels_stay_in_bounds(run_watched: Callable[[str], str]) -> None:
    """Over every lying entry and thousands of damaged ones."""
    code = """
    from tests.wire.test_batch_hostile import CASES, GOOD, SEEDS, EntryRef, check, compiled_batch

    for case in CASES.values():
        assert not check(compiled_batch, [GOOD, EntryRef(1, 1, case)])
    chance = random.Random(1)
    for turn in range(5000):
        body = bytearray(chance.choice(SEEDS))
        for _ in range(chance.randint(1, 3)):
            body[chance.randrange(6, len(body))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        check(compiled_batch, [GOOD, EntryRef(1, 1, bytes(body)), GOOD])
    """
    assert run_watched(code) == "in bounds\n"


def test_compiled_readers_and_writers_of_commands_stay_in_bounds(run_watched: Callable[[str], str]) -> None:
    """Over damaged and cut commands and entries, and the largest numbers that a field can hold."""
    code = """
    from broker_core.base.errors import RemoteProtocolError
    from broker_core.wire.core import hot_commands as heads, metadata
    from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata
    from broker_core.wire.entry import seal_entry
    from tests.wire import single_frames

    ack = CommandAck(consumer_id=3, ack_type=CommandAck.Individual)
    for entry in range(20):
        ack.message_id.add(ledgerId=7, entryId=100 * entry, partition=1)
    whole = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, partition_key="key", ordering_key=b"o")
    commands = [
        heads.send_frame_head(3, 1_000_000, 1000, 0, 1_000_999)[8:],
        single_frames.receipt_frame(3, 1_000_000, 7, 300, 2, 5)[8:],
        single_frames.message_frame_head(3, 7, 300, 2, 1, (-1, 5), 0)[8:],
        BaseCommand(type=BaseCommand.ACK, ack=ack).SerializeToString(),
        seal_entry(whole.SerializeToString(), b""),
    ]
    readers = [
        *(heads.parse_receipt, heads.parse_message, heads.parse_flow),
        *(metadata.has_usual_metadata, metadata.count_of_messages, lambda body: metadata.usual_keys([body], None)),
        *(lambda command: heads.parse_sends([command] * 2, 0), lambda command: heads.parse_acks([command] * 2, 0)),
    ]
    chance = random.Random(1)
    for turn in range(20_000):
        command = bytearray(chance.choice(commands))
        for _ in range(chance.randint(0, 3)):
            command[chance.randrange(len(command))] = chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])
        del command[chance.randrange(len(command) + 1) :]
        for read in readers:
            try:
                read(bytes(command))
            except RemoteProtocolError:
                pass
    for most in (-1, 2**63 - 1, -(2**63)):
        signed = max(most, -1)
        heads.send_frame_head(most, most, 2**31 - 1, 2**31, signed, True)
        heads.receipt_frames([most] * 9, [most] * 9, most, signed - 9, 2**31 - 1, [signed] * 9)
        deliveries = [(((most, most), b"body", 1, most, most), 2**31, words) for words in ((), [most] * 500)]
        heads.message_buffers(deliveries, most, 2**31 - 1, signed, True)
        single_frames.message_frame_head(most, most, most, 2**31 - 1, 2**31, [most] * 500, 2**31, signed)
        heads.ack_ids(most, [most] * 99, 2**31 - 1)
        heads.varint(most)
    """
    assert run_watched(code) == "in bounds\n"
