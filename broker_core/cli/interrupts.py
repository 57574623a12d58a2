# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGHUP as Ctrl-C, for commands that have to tell what they did before they end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class SignalledError(KeyboardInterrupt):
    """A signal other than that of Ctrl-C asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def ends_in_order() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP are exceptions, as Ctrl-C is; a signal that is ignored, as nohup does, stays
    so. Signals come to the main thread alone."""
    mine = [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        mine = []
    for each in mine:
        signal.signal(each, _raise)
    try:
        yield
    finally:
        for each in mine:
            signal.signal(each, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    raise SignalledError(number)
