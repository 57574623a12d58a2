# SPDX-License-Identifier: Apache-2.0
"""A few random scripts in lockstep, and whether the rig notices when the brokers differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from broker_core.base.settings import Settings
from broker_core.broker.compaction.latest_messages import LatestMessages
from broker_core.broker.consumer import Consumer
from broker_core.broker.cursors.cursor import Cursor
from broker_core.broker.dispatch.given_out import GivenOut
from broker_core.broker.dispatch.key_shared.draining import DrainingHashes
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.sim_disk import SimDisk
from tests.apache_pulsar.start import ApachePulsar
from tests.lockstep.compacted import play_compacted
from tests.lockstep.rig import NO_TAKEOVER_PAUSE, OUR_SETTINGS, Rivals, play, smaller
from tests.lockstep.script import Publish, Redeliver, Step, Subscribe, make_script
from tests.server.oracle import Side as Address
from tests.server.server_thread import ServerThread

SEEDS: Final = (5, 16, 20, 64)
"""Together they have every step, crowds, batches and a limit."""

USUAL_TAKEOVER_S: Final = 1.2
"""A little more than the pause that both brokers make by default."""


def test_the_chosen_scripts_have_everything() -> None:
    """So that the next test leaves out no kind of step."""
    scripts = [make_script(seed) for seed in SEEDS]
    assert {type(step) for script in scripts for step in script.steps} == set(get_args(Step))
    assert {bool(script.unacked_max) for script in scripts} == {True, False}


@pytest.mark.pulsar
def test_scripts_go_the_same_way_on_both_brokers(tmp_path: Path, apache_pulsar: ApachePulsar) -> None:
    """2.2.1, 2.3.5.2, 2.4.7, 2.9, 3.4.3, 3.5.1, 4.4.1: what comes, to whom where that is promised, counts, backlogs and
    refusals; a difference is printed with its script."""
    with RunningBroker(tmp_path / "data", OUR_SETTINGS) as ours, ThreadPoolExecutor(len(SEEDS)) as players:
        theirs = Address(apache_pulsar.http_url, apache_pulsar.service_url)
        rivals = Rivals(Address(ours.http_url, ours.service_url), theirs, USUAL_TAKEOVER_S)
        found = list(players.map(lambda seed: play(make_script(seed), rivals), SEEDS))
    assert [str(each) for each in found if each is not None] == []


@pytest.mark.pulsar
def test_compacted_topics_are_read_the_same_on_both_brokers(tmp_path: Path, apache_pulsar: ApachePulsar) -> None:
    """7.4.1 to 7.4.3, 7.4.7, 7.4.8, 7.4.10: batches of all codecs, deletions, keyless messages, unloads and trims."""
    with RunningBroker(tmp_path / "data") as ours, ThreadPoolExecutor(len(SEEDS)) as players:
        theirs = Address(apache_pulsar.http_url, apache_pulsar.service_url)
        rivals = Rivals(Address(ours.http_url, ours.service_url), theirs, USUAL_TAKEOVER_S)
        found = list(players.map(lambda seed: play_compacted(seed, rivals), SEEDS))
    assert [each for each in found if each is not None] == []


@contextmanager
def two_of_ours(folder: Path) -> Iterator[Rivals]:
    """The first is in this process, where a test may break it."""
    settings = Settings(active_consumer_failover_delay_time_millis=0)
    with RunningBroker(folder / "data", NO_TAKEOVER_PAUSE) as right, ServerThread(SimDisk(), settings) as wrong:
        ours, theirs = (Address(each.http_url, each.service_url) for each in (wrong, right))
        yield Rivals(ours, theirs, takeover_s=0.0, patience_s=0.5)


def counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenOut, "count_redelivery", lambda *_: None)


def never_unblocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GivenOut, "_unblock_at", lambda *_: None)


def drains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DrainingHashes, "blocks", lambda *_: False)


def takes_a_part_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cursor, "ack_partial", lambda self, position, _: int(not self.ack(position)))


def gives_a_permit_more(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Consumer.flow
    monkeypatch.setattr(Consumer, "flow", lambda self, permits: usual(self, permits + 1))


@pytest.mark.parametrize(
    ("broken", "seed"),
    [
        (counts_nothing, 9),
        (never_unblocks, 64),
        (drains_nothing, 62),
        (takes_a_part_for_the_whole, 14),
        (gives_a_permit_more, 2),
    ],
)
def test_a_broken_broker_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch], Any], seed: int
) -> None:
    """One of two brokers of ours is broken, in one respect."""
    with two_of_ours(tmp_path) as rivals:
        assert play(make_script(seed), rivals) is None
        broken(monkeypatch)
        assert play(make_script(seed), rivals) is not None


def test_a_difference_is_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the script cannot be left out."""
    with two_of_ours(tmp_path) as rivals:
        counts_nothing(monkeypatch)
        found = play(make_script(9), rivals)
        assert found is not None
        small = smaller(found, rivals, within_s=60)
    assert [type(step) for step in small.steps] == [Subscribe, Publish, Redeliver], str(small)


def test_a_broken_compaction_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two brokers of ours deletes no keys."""
    with two_of_ours(tmp_path) as rivals:
        assert play_compacted(1, rivals) is None
        monkeypatch.setattr(LatestMessages, "remove", lambda *_: -1)
        assert play_compacted(1, rivals) is not None
