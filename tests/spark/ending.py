# SPDX-License-Identifier: Apache-2.0
"""The end of an embedded broker, to the last: what tests do with its port or its directory must come after that."""

from __future__ import annotations

import os
import signal

import psutil

from tests.spark.queries import eventually


def end(pid: int, number: signal.Signals) -> None:
    """Send a signal, and return when the process has ended.

    That its ``broker.json`` is gone does not say so: a broker takes it away first, and then frees port and directory.
    """
    os.kill(pid, number)
    eventually(lambda: _has_ended(pid), "the broker has ended")


def _has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
