# SPDX-License-Identifier: Apache-2.0
"""What was freed is taken again, and not got from the system page by page."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES_OF_A_ROUND = 3 * 1024
"""Three blocks of 4 MiB in pages of 4 KiB, the largest number that a system takes for them."""

CODE = """
import resource
from broker_core.base.allocator import keep_some
keep_some()
def take_and_leave():
    blocks = [bytearray(4 * 1024 * 1024) for _ in range(3)]
for _ in range(5):
    take_and_leave()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    take_and_leave()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_blocks_that_are_taken_over_and_over_stay_with_the_process() -> None:
    """Ten rounds cost fewer page faults than half of one round would if its memory were new."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < PAGES_OF_A_ROUND / 2
