# SPDX-License-Identifier: Apache-2.0
"""Settings that many threads of a process make at once: in a process of its own, for it may crash or hang."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

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

_FORKS_AMONG_THREADS: Final = """
import os, signal, threading
from broker_core.client.settings.config import ProducerConfig

ProducerConfig()
is_over = threading.Event()

def make():
    while not is_over.is_set():
        ProducerConfig()

threads = [threading.Thread(target=make) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(20):
    if (child := os.fork()) == 0:
        signal.alarm(60)  # Ends what hangs.
        ProducerConfig()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        break
else:
    print("all ended")
is_over.set()
"""


def test_threads_may_make_the_first_settings_of_a_kind_together() -> None:
    """As an application does that starts a consumer in each of its threads."""
    done = subprocess.run([sys.executable, "-c", _MANY_THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_process_may_be_forked_while_threads_make_settings() -> None:
    """As by ``multiprocessing``: a lock that a thread holds at that moment is held for ever in the child."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKS_AMONG_THREADS]  # Newer Pythons warn of it.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("all ended\n", "")
