# SPDX-License-Identifier: Apache-2.0
"""The log of a broker: what it says, how its lines look, and that nobody can make it large."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker_core.base.clock import Clock
from broker_core.base.errors import ConfigError
from broker_core.base.settings import LogFormat
from broker_core.client import Client
from broker_core.server import log as log_module
from broker_core.server.log import LINE_CHARACTERS_MAX, LINES_A_WINDOW, WINDOW_S, Log, event_of
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers

OURS = logging.getLogger("broker_core.server.tests")


@pytest.fixture(autouse=True)
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The number of a file that stands for stderr here; the log of this process is as it was afterwards."""
    root, ours, number = logging.getLogger(), logging.getLogger("broker_core"), os.dup(2)
    before = list(root.handlers), root.level, ours.level
    monkeypatch.setattr(log_module, "_STDERR", number)
    yield number
    os.close(number)
    for handler in set(root.handlers) - set(before[0]):
        root.removeHandler(handler)
        handler.close()
    root.setLevel(before[1])
    ours.setLevel(before[2])


def begun(file: Path, level: str = "info", line_format: LogFormat = "text", clock: Clock | None = None) -> Log:
    """A log that has begun, with what is logged here and no more: clients of other tests may still live, and speak."""
    before = set(logging.getLogger().handlers)
    log = Log(clock)
    log.begin(level, line_format, str(file))
    for handler in set(logging.getLogger().handlers) - before:
        handler.addFilter(lambda record: record.name == OURS.name)
    return log


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_line_has_time_and_level_and_is_one_line(tmp_path: Path) -> None:
    """Whatever a client puts into a text: no line is forged, no terminal obeys, and its length is bounded."""
    file = tmp_path / "log"
    begun(file)
    OURS.info("request refused reason=%s", "a\nb\x1b[31m\x85" + "x" * 10_000)
    [line] = _lines(file)
    start = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO request refused reason="
    assert re.match(start + r"a\\nb\\x1b\[31m\\x85xxx", line)
    assert len(line) < LINE_CHARACTERS_MAX + 200


def test_lines_of_json_hold_the_values_by_name(tmp_path: Path) -> None:
    """A program needs no pattern to read them; a trace is a field."""
    file = tmp_path / "log"
    begun(file, line_format="json")
    OURS.warning("ack refused topic=%s entries=%d time=%s", "t\n", 3, "mine")
    try:
        raise ValueError("no")
    except ValueError:
        OURS.exception("a bug")
    first, second = map(json.loads, _lines(file))
    values = {"topic": "t\\n", "entries": 3}
    assert first == {**first, "level": "warning", "event": "ack refused", "logger": OURS.name, **values}
    assert first["time"].endswith("Z")
    assert (second["event"], "ValueError: no" in second["trace"]) == ("a bug", True)


def test_what_is_below_the_level_is_not_written(tmp_path: Path) -> None:
    """And what is above it is."""
    file = tmp_path / "log"
    begun(file, "warning")
    OURS.info("too little")
    OURS.warning("enough")
    assert [line.split()[1:] for line in _lines(file)] == [["WARNING", "enough"]]


def test_what_repeats_is_counted(tmp_path: Path) -> None:
    """100,000 refused acknowledgements were 17 MB; other events are still heard, and the count is told."""
    file, clock = tmp_path / "log", VirtualTimers()
    log = begun(file, clock=clock)
    for number in range(100_000):
        OURS.info("ack refused entry=%d", number)
    OURS.info("something else")
    assert len(_lines(file)) == LINES_A_WINDOW + 1
    log.tell_repeats()
    assert len(_lines(file)) == LINES_A_WINDOW + 1
    clock.advance(int(1000 * WINDOW_S))
    log.tell_repeats()
    assert _lines(file)[-1].endswith("lines left out repeated=ack refused count=99980 seconds=10")
    OURS.info("ack refused entry=%d", 1)
    assert _lines(file)[-1].endswith("ack refused entry=1")


def test_the_file_stays_small_and_stderr_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: int
) -> None:
    """One predecessor is kept, both are for this user only, and what goes to stderr directly lands there too."""
    monkeypatch.setattr(log_module, "FILE_BYTES_MAX", 1000)
    file = tmp_path / "log"
    begun(file)
    for number in range(LINES_A_WINDOW):
        OURS.info("line %s", "x" * 100 + str(number))
    os.write(stderr, b"last words\n")
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 1000 + 20
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert _lines(file)[-1] == "last words"


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to(path.with_name("victim"))])
def test_a_log_file_that_cannot_be_had_is_a_wrong_setting(tmp_path: Path, make: object) -> None:
    """A directory, or a link to somebody's file, which must not be written through."""
    file = tmp_path / "log"
    make(file)  # type: ignore[operator]
    with pytest.raises(ConfigError, match="cannot be written"):
        Log().begin("info", "text", str(file))
    assert not (tmp_path / "victim").exists()


def test_an_event_is_what_the_code_says() -> None:
    """Without the values, which a client may choose."""
    assert event_of("connection closed peer=%s reason=%s") == "connection closed"
    assert event_of("a bug") == "a bug"


def test_a_broker_says_when_it_starts_stops_and_refuses(tmp_path: Path) -> None:
    """A line each at level info, also for a request over HTTP; nothing of it on stdout."""
    with RunningBroker(tmp_path / "data", {"allowAutoTopicCreation": False, "logFormat": "json"}) as broker:
        with Client(broker.service_url) as client, pytest.raises(Exception, match="does not exist"):
            client.create_producer("nobody-made-it")
        assert httpx.get(f"{broker.http_url}/admin/v2/persistent/public/default/none/stats").status_code == 404
        assert broker.stop() == 0
        events = [json.loads(line) for line in broker.stderr.splitlines()]
    assert [each["event"] for each in events[:2]] == ["every user of this machine may do everything", "broker started"]
    assert (events[1]["service"], events[1]["data"]) == (broker.service_url, str(tmp_path / "data"))
    assert [each["event"] for each in events[-2:]] == ["broker stops", "broker stopped"]
    refused = [each for each in events if each["event"] == "request refused"]
    assert any("nobody-made-it" in each.get("reason", "") for each in refused)
    assert any(each.get("status") == 404 and "does not exist" in each["answer"] for each in refused)
