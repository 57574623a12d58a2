# SPDX-License-Identifier: Apache-2.0
"""A broker that lies, to prove that the rig finds out: it confirms at once and writes a moment later.

A kill between the confirmation and the write loses what was confirmed.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Final

from broker_core.storage.commit import CommitJob

LATE_S: Final = 0.3
"""Twice as long as the rig lets a broker live behind what it has confirmed: each kill loses something, although a busy
machine may keep clients from sending all the time."""


def lie() -> None:
    """From now on, in children too, a commit job returns before it has written to any ledger or cursor log."""
    write = CommitJob._write
    late: queue.SimpleQueue[tuple[float, CommitJob]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            due_s, job = late.get()
            time.sleep(max(due_s - time.monotonic(), 0))
            write(job)

    def run(job: CommitJob) -> None:
        if not any(thread.name == "late" for thread in threading.enumerate()):
            threading.Thread(target=work, name="late", daemon=True).start()
        for group in job.groups:
            if group.file is None:
                job._make_file(group)  # who reads next is to find the file, though nothing in it
        late.put((time.monotonic() + LATE_S, job))

    setattr(CommitJob, "_write", run)  # noqa: B010 - an assignment would need the type of a method
