# SPDX-License-Identifier: Apache-2.0
"""The audit log: each refusal and each change, in a file of its own that holds no secrets."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from broker_core.base.clock import SystemClock
from broker_core.server.security.audit import MINUTE_S, REFUSALS_A_MINUTE, AuditEvent, AuditLog
from broker_core.testing.virtual_timers import VirtualTimers

EVENT = AuditEvent(verdict="refused", role="app", method="PRODUCER", resource="persistent://acme/ns/t")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def log_at(path: Path, size_max_bytes: int = 1 << 20) -> AuditLog:
    return AuditLog(str(path), size_max_bytes, SystemClock(), VirtualTimers())


def test_an_event_is_a_line_for_its_owner_alone(tmp_path: Path) -> None:
    """With its time, and without fields that say nothing."""
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.record(EVENT)
    log.record(AuditEvent(verdict="allowed", role="boss", method="PUT", path="/x\n", resource="r" * 9000, status=204))
    log.close()
    first, second = lines_of(path)
    assert first.pop("time").endswith("Z")
    assert first == {"verdict": "refused", "role": "app", "method": "PRODUCER", "resource": "persistent://acme/ns/t"}
    assert (second["path"], second["status"], len(second["resource"])) == ("/x\n", 204, 2000)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_begins_anew_at_its_size(tmp_path: Path) -> None:
    """The one before it is kept; a broker that starts goes on with what is there."""
    path = tmp_path / "audit.log"
    for _ in range(2):
        log = log_at(path, 300)
        log.record(EVENT)
        log.close()
    assert len(lines_of(path)) == 2
    log = log_at(path, 300)
    log.record(EVENT)
    log.close()
    assert (len(lines_of(path)), len(lines_of(tmp_path / "audit.log.1"))) == (1, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    """As programs that rotate logs do."""
    path = tmp_path / "audit.log"
    log = log_at(path)
    log.record(EVENT)
    os.rename(path, tmp_path / "taken")
    log.record(EVENT)
    os.unlink(path)
    log.record(EVENT)
    log.close()
    assert (len(lines_of(path)), len(lines_of(tmp_path / "taken"))) == (1, 1)


def test_a_log_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One, not one for each event; and another when it goes on, with how many are lost."""
    folder = tmp_path / "later"
    clock = _Clock()
    log = AuditLog(str(folder / "audit.log"), 1 << 20, clock, VirtualTimers())
    with caplog.at_level(logging.WARNING, "broker_core"):
        for _ in range(3):
            log.record(EVENT)
        folder.mkdir()
        log.record(EVENT)  # too early for another attempt
        clock.seconds += 2
        log.record(EVENT)
        log.close()
    assert [record.getMessage().partition(" path=")[0] for record in caplog.records] == [
        "audit log cannot be written",
        "audit log is written again",
    ]
    assert "lost=4" in caplog.text
    assert len(lines_of(folder / "audit.log")) == 1


def refused_at(address: str) -> AuditEvent:
    return AuditEvent(verdict="refused", role="app", address=address, method="LOOKUP")


def test_a_flood_of_refusals_is_counted(tmp_path: Path) -> None:
    """Spec 9.5: it rotates the lines of others away neither in this minute nor in the next; what was let through has
    its lines."""
    path, time = tmp_path / "audit.log", VirtualTimers()
    log = AuditLog(str(path), 20_000, time, time)
    log.record(refused_at("10.0.0.9:1"))
    log.record(AuditEvent(verdict="allowed", address="10.0.0.1:1", method="PUT"))
    for minute in range(3):
        for number in range(10_000):
            log.record(refused_at(f"10.0.0.1:{minute * 10_000 + number}"))
        log.record(AuditEvent(verdict="allowed", address="10.0.0.1:1", method="PUT"))
        log.record(refused_at("10.0.0.2:1"))
        time.advance(round(MINUTE_S * 1000))
    log.close()
    lines = lines_of(path)
    assert len(lines) == 2 + 3 * (REFUSALS_A_MINUTE + 1 + 2)
    assert [each["address"] for each in lines].count("10.0.0.9:1") == 1
    counted = [each for each in lines if "moreRefusals" in each]
    assert [(each["address"], each["moreRefusals"]) for each in counted] == [
        ("10.0.0.1", 10_000 - REFUSALS_A_MINUTE)
    ] * 3
    assert [each["verdict"] for each in lines].count("allowed") == 4
    assert not (tmp_path / "audit.log.1").exists()


def test_a_broker_that_stops_writes_what_it_has_counted(tmp_path: Path) -> None:
    """Also of addresses without a port, and of more of them than are told apart."""
    log = log_at(tmp_path / "audit.log")
    for _ in range(REFUSALS_A_MINUTE + 3):
        log.record(refused_at("10.0.0.1"))
    for number in range(3000):
        log.record(refused_at(f"10.1.{number // 256}.{number % 256}:1"))
    log.close()
    counted = {
        each["address"]: each["moreRefusals"] for each in lines_of(tmp_path / "audit.log") if "moreRefusals" in each
    }
    assert counted.keys() == {"10.0.0.1", "many"}
    assert counted["10.0.0.1"] == 3
    assert counted["many"] == 3000 - 999 - REFUSALS_A_MINUTE


class _Clock(SystemClock):
    """Monotonic time that a test moves."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write into the folder could have another file written to."""
    (tmp_path / "other").write_text("mine")
    (tmp_path / "audit.log").symlink_to(tmp_path / "other")
    log = log_at(tmp_path / "audit.log")
    log.record(EVENT)
    log.close()
    assert (tmp_path / "other").read_text() == "mine"


def test_no_file_is_made_where_none_is_wanted(tmp_path: Path) -> None:
    """auditLogMaxSizeInMB=0."""
    log = log_at(tmp_path / "audit.log", 0)
    log.record(EVENT)
    log.close()
    assert list(tmp_path.iterdir()) == []
