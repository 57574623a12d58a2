# SPDX-License-Identifier: Apache-2.0
"""The lines of stdin are those that a file has, however they arrive."""

from __future__ import annotations

import os
import threading
from unittest.mock import patch

import pytest

from broker_core.cli.produce import stdin_lines

CONTENTS = [b"", b"\n", b"one", b"one\n", b"\n\none\n\n", b"a\r\nb", b"x" * 300_000 + b"\nshort\n" + b"y" * 100_000]


@pytest.mark.parametrize("content", CONTENTS)
def test_lines_of_a_pipe(content: bytes) -> None:
    """Written in pieces that end anywhere; only the newline is taken off."""
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb", buffering=0) as pipe:
            pipe.writelines(content[start : start + 50_021] for start in range(0, len(content), 50_021))

    writer = threading.Thread(target=write)
    writer.start()
    with open(reading) as stdin, patch("sys.stdin", stdin):
        lines = list(stdin_lines())
    writer.join()
    assert lines == content.removesuffix(b"\n").split(b"\n") if content else not lines


def test_a_line_is_there_before_the_next_one_is_written() -> None:
    """Who types line by line sees each stored at once."""
    reading, writing = os.pipe()
    with open(reading) as stdin, patch("sys.stdin", stdin):
        lines = stdin_lines()
        for line in (b"one", b"two"):
            os.write(writing, line + b"\nbegun")
            assert next(lines).endswith(line)
        os.close(writing)
        assert list(lines) == [b"begun"]
