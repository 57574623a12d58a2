# SPDX-License-Identifier: Apache-2.0
"""What is said of lost connections, and how often."""

from __future__ import annotations

import logging

import pytest

from broker_core.cli.connection_watch import ConnectionWatch
from broker_core.testing.virtual_timers import VirtualTimers


def test_a_connection_that_comes_and_goes_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """All that lose it are one loss; the next within ten seconds are told only if it stays away."""
    clock = VirtualTimers()
    news = ConnectionWatch(clock)

    def heard(event: str, *arguments: str) -> list[str]:
        news.emit(logging.LogRecord("n", logging.INFO, "", 0, f"{event} owner=%r", arguments, None))
        return capsys.readouterr().err.splitlines()

    assert heard("attachment lost", "a", "why") == ["the connection is lost, trying again: why"]
    assert heard("attachment lost", "b", "why") == []
    assert heard("attachment back", "a") == []
    assert heard("attachment back", "b") == ["connected again"]
    assert heard("attachment lost", "a", "why") == []
    assert heard("attachment back", "a") == []
    assert heard("attachment lost", "a", "why") == []
    clock.advance(10_000)
    assert heard("attachment failed", "a", "refused") == ["the connection is lost, trying again: refused"]
    assert heard("attachment back", "a") == ["connected again"]
