# SPDX-License-Identifier: Apache-2.0
"""Values of many chunks through ``produce -f`` and ``consume -o raw``, and what they take in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, command_line, environment
from tests.client.raw_chunks import RawChunks

SIZE_MIB = 160

_MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(done.returncode)
"""
"""Runs a command from a small process: what a child is reckoned to take is at least what its parent took."""


def peak_mib(broker: RunningBroker, home: Path, out: Path, *arguments: str) -> int:
    """The most memory that the command had, its output in ``out``."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(out), *command_line(*arguments)],
        env=environment(home, PULSARISH_DATA_DIR=str(broker.data_dir), PYTHONPATH=os.getcwd()),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_large_file_goes_through_a_topic_without_being_in_memory(broker: RunningBroker, tmp_path: Path) -> None:
    """5.1.2, 5.3.4: sending and receiving take less than the value more than those of a small one; bytes are equal."""
    file, out = tmp_path / "file", tmp_path / "out"
    part = os.urandom(1024 * 1024)
    with file.open("wb") as written:
        for number in range(SIZE_MIB):
            written.write(number.to_bytes(2) + part[2:])
    small = peak_mib(broker, tmp_path, out, "produce", "small", "-m", "x")
    sent = peak_mib(broker, tmp_path, out, "produce", "large", "-f", str(file), "--chunking")
    assert sent - small < SIZE_MIB / 2
    small = peak_mib(broker, tmp_path, out, "consume", "small", "--exit", "-o", "raw")
    for how in ([], ["-s", "s"]):
        taken = peak_mib(broker, tmp_path, out, "consume", "large", "--exit", "-o", "raw", *how)
        assert taken - small < SIZE_MIB / 2
        with file.open("rb") as source, out.open("rb") as printed:
            for _ in range(SIZE_MIB):
                assert source.read(len(part)) == printed.read(len(part))
            assert printed.read() == b"\n"


def test_a_message_whose_rest_never_comes_is_told_and_not_printed(
    broker: RunningBroker, pulsarish: Pulsarish, topic: str
) -> None:
    """5.3.7: what came is not acknowledged by this, and no part of it is in the output."""
    pulsarish("produce", topic, "-m", "before")
    pulsarish("sub", "create", topic, "s", "--from", "earliest")
    raw = RawChunks(broker.service_url, f"persistent://public/default/{topic}")
    with raw.connection:
        raw.send("A0", 2, b"x" * 2048)
        done = pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw", "--timeout", "2")
    assert (done.returncode != 0, done.stdout) == (True, b"before\n")
    assert b"of a message in chunks of which 2.0 KiB are here\nnothing of it is printed\n" in done.stderr


@pytest.mark.parametrize("options", [[], ["--chunking"], ["--chunking", "--compression", "zstd"]])
def test_files_that_are_not_regular_or_changed_by_options_are_sent_whole(
    pulsarish: Pulsarish, topic: str, tmp_path: Path, options: list[str]
) -> None:
    """A pipe has no parts, a compressed value is compressed whole; the value is the same."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    value = os.urandom(2 * 1024 * 1024)
    file.write_bytes(value)
    with subprocess.Popen(["cp", str(file), str(pipe)]):
        done = pulsarish("produce", topic, "-f", str(pipe), "-f", str(file), *options)
    assert done.returncode == 0, done.stderr
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stdout == (value + b"\n") * 2
