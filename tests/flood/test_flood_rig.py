# SPDX-License-Identifier: Apache-2.0
"""A slice of ``make flood``: small attacks of several kinds, one after the other on one broker; and that each of its
checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.settings import Settings
from tests.flood import memory
from tests.flood.attacks import _FRAME_BYTES, _REDELIVERY, _long_list
from tests.flood.measured_broker import LONG_MS
from tests.flood.memory import OPENS, Opens, bound_mib, left_mib_max
from tests.flood.rig import ALL_ATTACKS, measure, problems, turn_ms_max
from tests.flood.target import Target

SIZE = 0.02
SLACK = 5
"""How much longer a turn may take here: caches are cold, and the machine has other things to do."""

CHOSEN = (
    *("a_million_tiny_sends", "an_ack_of_5_mib_of_odd_ids", "a_redelivery_of_5_mib_of_ids"),
    *("a_subscribe_of_400_000_properties", "watching_10_000_topics", "joining_key_shared_1_500_times"),
    *("frames_that_never_end", "http_that_drips", "a_message_to_4_000_subscriptions", "partitions_told_to_watches"),
    *("passing_over_100_000_messages", "partitions_made_and_deleted", "handshakes_at_once", "records_of_a_byte"),
    *("tokens_that_prove_nothing", "passwords_that_are_guessed", "fresh_credentials_that_nobody_asked_for"),
    *("requests_that_prove_nothing", "schemas_of_a_mib_of_every_shape", "schemas_until_no_more_are_kept"),
    "consumers_and_producers_with_schemas",
)
LIMITS = Path(__file__).parents[2] / "docs" / "limits.md"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A broker that measures its turns."""
    under_attack = Target(tmp_path_factory.mktemp("flood"))
    yield under_attack
    under_attack.close()


@pytest.mark.parametrize("name", CHOSEN)
def test_an_attack_takes_the_broker_from_nobody(target: Target, name: str) -> None:
    """Every turn of its loop is short in CPU time, a client beside it is served, memory is bounded and goes back."""
    opens = OPENS.get(name, Opens())
    found = measure(target, ALL_ATTACKS[name], opens, SIZE)
    assert found.turns > 0
    assert problems(target, found, opens, SIZE, longest_ms_max=SLACK * turn_ms_max()) == []


@pytest.fixture
def harmed(tmp_path: Path) -> Iterator[Target]:
    """A broker with so little memory allowed that it is soon too much."""
    small = {
        "maxUnfinishedInputSizeInMB": 1,
        "maxMessagePublishBufferSizeInMB": 1,
        "maxUnsentOutputSizeInMB": 1,
        "managedLedgerCacheSizeMbytes": 1,
        "maxSchemaBytesInAll": 100_000,
        "maxMessageSize": 100_000,
    }
    under_attack = Target(tmp_path, small)
    yield under_attack
    under_attack.close()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("work 30", ["a turn took"]),
        ("hold 250", ["the process had", "were not given back"]),
        ("hold 50", ["were not given back"]),
        ("", []),
    ],
)
def test_the_rig_notices(harmed: Target, harm: str, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of 30 ms; more memory than the sum, and memory that stays; and nothing where nothing is wrong."""
    monkeypatch.setattr("tests.flood.target._GIVEN_BACK_S", 1.0)

    def attack(target: Target, _size: float) -> None:
        if harm:
            target.harm(harm)

    found = measure(harmed, attack, Opens(), 1.0)
    if "turn" not in "".join(told):
        found = found._replace(longest_ms=0.0)  # a machine that has other things to do is not what is looked at
    seen = problems(harmed, found, Opens(), 1.0, longest_ms_max=LONG_MS)
    assert len(seen) == len(told)
    assert all(wanted in each for wanted, each in zip(told, seen, strict=True))


def test_the_rig_notices_that_nobody_else_is_served(target: Target) -> None:
    """As where all there is to do is done for one client first."""
    found = measure(target, ALL_ATTACKS["pings"], Opens(), SIZE)
    assert found.others
    calm = found._replace(longest_ms=0.0)
    assert problems(target, calm, Opens(), SIZE, longest_ms_max=LONG_MS) == []
    assert problems(target, calm._replace(others=0), Opens(), SIZE, longest_ms_max=LONG_MS) == [
        "nobody else was served"
    ]


def test_a_list_of_ids_is_as_long_as_a_frame_allows() -> None:
    """The name says 5 MiB, and the broker must not refuse it for its size."""
    for kind, partition in (("ACK", False), (_REDELIVERY, True)):
        frame = _long_list(kind, _FRAME_BYTES, partition=partition)
        assert 0.999 * _FRAME_BYTES < len(frame) - 8 <= _FRAME_BYTES


def test_the_numbers_are_those_of_the_documentation() -> None:
    """The sum that the rig reckons is the one that users read."""
    text = LIMITS.read_text()
    for part in (
        f"{memory.PROCESS_MIB} MiB |",
        f"{memory.INPUT_OF_A_CONNECTION_KIB} KiB for each connection",
        f"{memory.OUTPUT_OF_A_CONNECTION_KIB} KiB for each connection",
        f"{memory.SCHEMAS_TIMES} x `maxSchemaBytesInAll` (16 MiB), and {memory.SCHEMAS_MIB} MiB for those",
        f"{memory.HTTP_CONNECTIONS} connections, each with a body of at most {memory.HTTP_BODY_KIB} KiB",
        f"connection {memory.CONNECTION_KIB} KiB, consumer {memory.CONSUMER_KIB} KiB",
        f"producer {memory.PRODUCER_KIB} KiB, subscription {memory.SUBSCRIPTION_KIB} KiB, topic {memory.TOPIC_KIB} KiB",
        f"{memory.MESSAGE_OUT_KIB} KiB for each message",
        f"{memory.ENCRYPTED_KIB} KiB for each connection with it, and {memory.ENCRYPTED_INPUT_KIB} KiB for input",
        f"{memory.HANDSHAKE_KIB} KiB for each handshake",
        f"up to {memory.KEPT_BY_THE_ALLOCATOR_MIB} MiB",
    ):
        assert part in text
    assert bound_mib(Settings(), Opens(topics=10_000)) - bound_mib(Settings(), Opens(topics=9_000)) == 1000 * 80 / 1024
    assert left_mib_max(Settings(), Opens()) < 50


def test_every_attack_has_its_own_name() -> None:
    """The table of the rig has a line for each, and there are as many as the documentation says."""
    assert set(CHOSEN) <= set(ALL_ATTACKS)
    assert set(OPENS) <= set(ALL_ATTACKS)
    assert len(ALL_ATTACKS) >= 54
