# SPDX-License-Identifier: Apache-2.0
"""How the process of the command begins."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import environment

pytestmark = pytest.mark.usefixtures("interruptible")  # Whether interrupts are ignored is inherited.

_INTERRUPTED_AT_IMPORT = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "broker_core.cli.produce":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["pulsarish", "version"]
{before}
runpy.run_module("broker_core", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [("", -signal.SIGINT, b""), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", 0, b"0.")],
    ids=["usual", "ignored"],
)
def test_an_interrupt_before_the_command_is_there(tmp_path: Path, before: str, code: int, said: bytes) -> None:
    """No traceback of imports; and whoever has Ctrl-C ignored, as shells do for background jobs, is not interrupted."""
    program = _INTERRUPTED_AT_IMPORT.format(before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.startswith(said)


def test_an_interrupt_of_the_command_is_its_own_again(tmp_path: Path) -> None:
    """The handler that turns Ctrl-C into an exit code is back when the command runs."""
    program = (
        "import signal, sys; sys.argv = ['pulsarish', 'version']; from broker_core.cli.entry import main; main();"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, timeout=120, check=True
    )
    assert done.stdout.endswith(b"True\n")
