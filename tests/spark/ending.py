# SPDX-License-Identifier: Apache-2.0
"""The end of an embedded broker, to the last: what tests do with its port or its directory must come after that."""

from __future__ import annotations

import os
import select
import signal

from tests.spark.queries import DEADLINE_S


def end(pid: int, number: signal.Signals) -> None:
    """Send a signal, and return when the process has ended, with all its threads.

    That its ``broker.json`` is gone does not say so: a broker takes it away first, and then frees port and directory.
    """
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, number)
        ended, _, _ = select.select([process], [], [], DEADLINE_S)
        assert ended, f"broker {pid} did not end within {DEADLINE_S} s of {number!r}"
    finally:
        os.close(process)
