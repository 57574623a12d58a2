# SPDX-License-Identifier: Apache-2.0
"""Settings that many threads make at once for the first time in a process: in one of its own, for it may crash."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

_MANY_THREADS: Final = """
import sys, threading
from typing import Annotated
import msgspec
from broker_core.client.settings.checked_settings import CheckedSettings

sys.setswitchinterval(1e-6)  # Threads take turns as often as they can.
for _ in range(20):
    fields = [(f"setting_{number}", Annotated[float, msgspec.Meta(ge=0)], 1.0) for number in range(40)]
    kind = msgspec.defstruct("Settings", fields, bases=(CheckedSettings,), frozen=True, kw_only=True)
    together = threading.Barrier(8)

    def make():
        together.wait()
        made.append(kind())

    made = []
    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
"""


def test_threads_may_make_the_first_settings_of_a_kind_together() -> None:
    """As an application does that starts a consumer in each of its threads."""
    done = subprocess.run([sys.executable, "-c", _MANY_THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
