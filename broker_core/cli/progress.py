# SPDX-License-Identifier: Apache-2.0
"""How far a command is that moves many messages, told on stderr now and then to a person who sees nothing else."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

import click

from broker_core.base.clock import SystemClock
from broker_core.cli.output import counted, human_bytes, on_terminal, say

INTERVAL_S: Final = 2.0

progress_option = click.option(
    "--progress/--no-progress",
    "shows_progress",
    default=None,
    help="Tell messages, bytes and rate on stderr every 2 s. [default: if stderr is a terminal and stdout is none]",
)


@contextlib.contextmanager
def progress(moved: Callable[[], tuple[int, int]], wanted: bool | None) -> Iterator[None]:
    """Within the block tell how many messages and bytes ``moved`` says, until now and in each second."""
    shows = sys.stderr.isatty() and not on_terminal() if wanted is None else wanted
    if not shows:
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_tell, args=(moved, is_over), name="pulsarish-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _tell(moved: Callable[[], tuple[int, int]], is_over: threading.Event) -> None:
    clock = SystemClock()
    begun_s = before_s = clock.monotonic()
    before_bytes = 0
    while not is_over.wait(INTERVAL_S):
        (messages, size), now_s = moved(), clock.monotonic()
        _say(messages, size, (size - before_bytes) / (now_s - before_s))
        before_s, before_bytes = now_s, size
    messages, size = moved()
    _say(messages, size, size / max(clock.monotonic() - begun_s, 0.001))


def _say(messages: int, size: int, rate: float) -> None:
    say(f"{counted(messages, 'message', 'messages')}, {human_bytes(size)}, {human_bytes(round(rate))}/s")
