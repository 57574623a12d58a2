# SPDX-License-Identifier: Apache-2.0
"""Every call of Go's admin library ends alike on our broker and on Apache Pulsar: well, or with the same error code.

docs/admin-differences.md has the calls that end differently, each with its reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar, UnavailableError
from tests.compat.go_walk import AFTER, BEFORE, Outcome, T, built, shown, walk
from tests.server.oracle import accepted

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

HEADING: Final = "Calls of Go's admin library"
MESSAGES: Final = 10


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that calls; skips where there is no Go."""
    try:
        return built(tmp_path_factory.mktemp("go"))
    except UnavailableError as missing:
        pytest.skip(str(missing))


def walked(program: Path, at: RunningBroker | ApachePulsar) -> list[Outcome]:
    """How each call ended on one broker."""
    before = walk(program, at.http_url, BEFORE)
    with Client(at.service_url) as client, client.create_producer(T, batching_enabled=False) as producer:
        for number in range(MESSAGES):
            producer.send(b"%d" % number)
    after = walk(program, at.http_url, AFTER)
    assert before.uncalled & after.uncalled == set()
    return [*before.outcomes, *after.outcomes]


def test_every_call_ends_as_on_apache_pulsar(program: Path, broker: RunningBroker, apache_pulsar: ApachePulsar) -> None:
    """1.1.5: tools that are made with this library find what they know, or are told no in the same way."""
    ours, theirs = walked(program, broker), walked(program, apache_pulsar)
    stale = set(accepted(HEADING))
    found: list[str] = []
    for call, mine, other in zip([*BEFORE, *AFTER], ours, theirs, strict=True):
        if mine.code == other.code:
            continue
        listed = [line for line in accepted(HEADING) if line.fullmatch(shown(call))]
        stale -= set(listed)
        if not listed:
            found.append(f"{shown(call)}: {mine} {mine.text[:200]} | {other} {other.text[:200]}")
    assert found == []
    assert [line.pattern for line in stale] == []
