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

LATE_S: Final = 0.02


def lie() -> None:
    """From now on, in children too, a commit job returns before it has written anything."""
    write = CommitJob.run
    late: queue.SimpleQueue[CommitJob] = queue.SimpleQueue()

    def work() -> None:
        while True:
            job = late.get()
            time.sleep(LATE_S)
            write(job)

    def run(job: CommitJob) -> None:
        if not any(thread.name == "late" for thread in threading.enumerate()):
            threading.Thread(target=work, name="late", daemon=True).start()
        late.put(job)

    setattr(CommitJob, "run", run)  # noqa: B010 - an assignment would need the type of a method
