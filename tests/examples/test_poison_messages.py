# SPDX-License-Identifier: Apache-2.0
"""The example of retries and dead letters as a newcomer runs it. It checks itself; here its talk is looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker_core.testing.running_broker import RunningBroker

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "poison_messages.py"


def test_every_order_ends_in_one_place(tmp_path: Path) -> None:
    """4.6.6, 4.7.8 (I4.7) unreadable orders are shown three times, those of a busy bank twice more, all others once."""
    with RunningBroker(tmp_path / "data") as broker:
        command = [sys.executable, str(EXAMPLE), "--service-url", broker.service_url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "54 paid" in done.stdout
    assert "20 tried again later" in done.stdout
    assert "18 could not be read" in done.stdout
    assert "6 dead letters" in done.stdout
    assert "check: passed" in done.stderr
