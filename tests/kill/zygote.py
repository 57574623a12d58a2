# SPDX-License-Identifier: Apache-2.0
"""Starts brokers fast: a process that has imported everything already and forks one for each line on its stdin.

A line is a JSON list of arguments for ``pulsarish``. The child runs the very code of that command, so only the time of
the imports is saved. Answers on stdout are ``forked PID``, and then whatever the broker prints, its ready line first.

    python -m tests.kill.zygote [LIAR]          (LIAR: a module whose ``lie`` makes the broker misbehave)
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

from broker_core.cli.main import main as pulsarish
from broker_core.server import process  # noqa: F401 - imported to be there when a child needs it


def main() -> None:
    """Fork a broker for each line, until stdin ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a child here: the kernel buries it
    for line in sys.stdin:
        arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os._exit(pulsarish(arguments))
        sys.stdout.write(f"forked {pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    for liar in sys.argv[1:]:
        importlib.import_module(liar).lie()
    main()
