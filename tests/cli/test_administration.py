# SPDX-License-Identifier: Apache-2.0
"""Policies, growth, termination and the moving of subscriptions with ``pulsarish``, against a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker_core.cli.policies import policy_names
from broker_core.client import Client
from broker_core.server.admin.policies import ROUTES
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.cli.conftest import Pulsarish


def _objects(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def _fill(pulsarish: Pulsarish, topic: str, count: int, subscription: str = "s") -> None:
    """A subscription with a backlog."""
    pulsarish("topic", "create", topic)
    assert pulsarish("sub", "create", topic, subscription).returncode == 0
    for number in range(count):
        pulsarish("produce", topic, "-m", str(number))


def _backlog(pulsarish: Pulsarish, topic: str, subscription: str = "s") -> int:
    rows = {row["subscription"]: row["msgBacklog"] for row in _objects(pulsarish("sub", "list", topic).stdout)}
    return int(rows[subscription])


def test_policies_are_set_shown_and_taken_back(pulsarish: Pulsarish, topic: str) -> None:
    """1.1.5, 7.1, 7.2, 7.3: Pulsar's names and JSON; --applied shows what is in force."""
    pulsarish("topic", "create", topic)
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    quota = {"destination_storage": {"limitSize": 1000, "policy": "producer_exception"}}
    set_all = ("--set", f"retention={json.dumps(retention)}", "--set", "messageTTL=9")
    done = pulsarish("topic", "policies", topic, *set_all, "--set", f"backlogQuota={json.dumps(quota)}")
    found = {row["policy"]: row["value"] for row in _objects(done.stdout)}
    assert (found["retention"], found["messageTTL"]) == (retention, 9)
    assert found["backlogQuota"]["destination_storage"]["limitSize"] == 1000
    assert set(found) == {"retention", "messageTTL", "backlogQuota"}
    # What a table shows can be given to --set again.
    assert json.dumps(retention) in pulsarish("topic", "policies", topic, "-o", "table").stdout.decode()
    left = pulsarish("topic", "policies", topic, "--unset", "messageTTL", "--unset", "backlogQuota")
    assert [row["policy"] for row in _objects(left.stdout)] == ["retention"]
    applied = {
        row["policy"]: row["value"] for row in _objects(pulsarish("topic", "policies", topic, "--applied").stdout)
    }
    assert (applied["messageTTL"], applied["maxUnackedMessagesOnConsumer"]) == (0, 50_000)


def test_the_command_knows_every_policy_of_the_broker() -> None:
    """1.1.5: what the admin REST can set, the command line can, under the same names."""
    settable = {route.path for route in ROUTES if {"POST", "PUT"} & set(route.methods or ())}
    names = {
        level: {path.rpartition("/")[2] for path in settable if level in path}
        for level in ("namespaces", "/persistent")
    }
    assert (set(policy_names("namespace")), set(policy_names("topic"))) == (names["namespaces"], names["/persistent"])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--set", "retentoin={}"), 2, b'did you mean "retention"?'),
        (("--set", "messageTTL"), 2, b"has no value"),
        (("--set", "messageTTL={"), 2, b"not JSON"),
        (("--set", "messageTTL=x"), 2, b"write a number, true, false"),
        (("--set", "messageTTL=1", "--unset", "messageTTL"), 2, b'policy "messageTTL" is given twice'),
        (("--set", "messageTTL=1", "--set", "messageTTL=2"), 2, b'policy "messageTTL" is given twice'),
        (("--unset", "nothing"), 2, b"known are"),
        (("--set", "messageTTL=-1"), 1, b"412"),
    ],
)
def test_impossible_policies_are_refused(
    pulsarish: Pulsarish, topic: str, arguments: tuple[str, ...], code: int, said: bytes
) -> None:
    """1.1.5: exit code 2 before anything was sent, 1 where the broker refuses."""
    pulsarish("topic", "create", topic)
    done = pulsarish("topic", "policies", topic, *arguments)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("partitions", [0, 2])
def test_what_lies_behind_a_topic_is_shown(pulsarish: Pulsarish, topic: str, domain: str, partitions: int) -> None:
    """1.1.8, 7.15: ledgers and cursors in Pulsar's words, of each partition apart; the statistics beside them."""
    name = f"{domain}://public/default/{topic}"
    pulsarish("topic", "create", name, "-p", str(partitions))
    (sums,) = _objects(pulsarish("topic", "stats", name).stdout)
    assert (sums["msgInCounter"], len(sums.get("partitions", ()))) == (0, partitions)
    if domain == "persistent":
        pulsarish("sub", "create", name, "s")
        assert pulsarish("produce", name, "-m", "1").returncode == 0
    (found,) = _objects(pulsarish("topic", "stats", name, "--internal").stdout)
    parts = list(found["partitions"].values()) if partitions else [found]
    assert sum(part["entriesAddedCounter"] for part in parts) == (1 if domain == "persistent" else 0)
    assert all(list(part["cursors"]) == ["s"] for part in parts) or domain == "non-persistent"


def test_partitions_grow(pulsarish: Pulsarish, topic: str) -> None:
    """1.2.2: the number can only grow, and only of a partitioned topic."""
    pulsarish("topic", "create", topic, "-p", "2")
    done = pulsarish("topic", "update-partitions", topic, "-p", "4")
    assert _objects(done.stdout) == [{"topic": f"persistent://public/default/{topic}", "partitions": 4}]
    assert pulsarish("topic", "update-partitions", topic, "-p", "3").returncode == 2
    pulsarish("topic", "create", f"{topic}x")
    assert pulsarish("topic", "update-partitions", f"{topic}x", "-p", "3").returncode == 2
    assert pulsarish("topic", "update-partitions", f"{topic}nowhere", "-p", "3").returncode == 3


def test_a_topic_is_unloaded_and_ended(pulsarish: Pulsarish, topic: str) -> None:
    """7.5: nobody produces after the end, what is there can be consumed; ending needs --yes."""
    _fill(pulsarish, topic, 2)
    assert pulsarish("topic", "unload", topic).returncode == 0
    assert pulsarish("topic", "terminate", topic).returncode == 2
    (row,) = _objects(pulsarish("topic", "terminate", topic, "-y").stdout)
    assert row["lastMessageId"].split(":")[1] == "1"
    assert pulsarish("produce", topic, "-m", "late", "--timeout", "5").returncode != 0
    assert len(_objects(pulsarish("consume", topic, "-s", "s", "-n", "2").stdout)) == 2
    assert pulsarish("topic", "unload", f"{topic}nowhere").returncode == 3


def test_a_topic_is_compacted(pulsarish: Pulsarish, topic: str) -> None:
    """7.4.5: with a wait for the end, and how it went."""
    for value in ("1", "2", "3"):
        assert pulsarish("produce", topic, "-m", value, "--key", "k").returncode == 0
    (row,) = _objects(pulsarish("topic", "compaction", topic).stdout)
    assert (row["status"], row["entries"]) == ("NOT_RUN", 0)
    (row,) = _objects(pulsarish("topic", "compact", topic, "--wait").stdout)
    assert (row["status"], row["entries"]) == ("SUCCESS", 1)
    (row,) = _objects(pulsarish("topic", "compaction", topic).stdout)
    assert (row["status"], row["lastError"]) == ("SUCCESS", "")
    assert pulsarish("topic", "compact", f"{topic}nowhere").returncode == 3
    pulsarish("topic", "create", f"{topic}p", "-p", "2")
    rows = _objects(pulsarish("topic", "compact", f"{topic}p", "--wait").stdout)
    assert [each["topic"].rpartition("-")[2] for each in rows] == ["0", "1"]


def test_a_threshold_is_set_at_both_levels(pulsarish: Pulsarish, topic: str) -> None:
    """7.4.6: a namespace takes it by another method than its other policies."""
    pulsarish("topic", "create", topic)
    for level, name in (("namespace", "public/default"), ("topic", topic)):
        rows = _objects(pulsarish(level, "policies", name, "--set", "compactionThreshold=5000000000").stdout)
        assert {"policy": "compactionThreshold", "value": 5_000_000_000} in rows
        assert pulsarish(level, "policies", name, "--unset", "compactionThreshold").returncode == 0


def test_a_partitioned_topic_is_ended_partition_by_partition(pulsarish: Pulsarish, topic: str) -> None:
    """7.5: one row with the last message for each."""
    pulsarish("topic", "create", topic, "-p", "2")
    rows = _objects(pulsarish("topic", "terminate", topic, "-y").stdout)
    assert [row["topic"].rpartition("-")[2] for row in rows] == ["0", "1"]


def test_a_backlog_is_skipped_expired_and_cleared(pulsarish: Pulsarish, topic: str) -> None:
    """7.2 (I3.1): each asks first, and says what it did."""
    _fill(pulsarish, topic, 5)
    for command in (("skip", "-n", "2"), ("clear",), ("expire", "--older-than", "0")):
        assert pulsarish("sub", command[0], topic, "s", *command[1:]).returncode == 2
    assert _backlog(pulsarish, topic) == 5
    assert pulsarish("sub", "skip", topic, "s", "-n", "2", "-y").returncode == 0
    assert _backlog(pulsarish, topic) == 3
    assert pulsarish("sub", "expire", topic, "s", "--older-than", "3600", "-y").returncode == 0
    assert _backlog(pulsarish, topic) == 3
    assert pulsarish("sub", "clear", topic, "s", "-y").returncode == 0
    assert _backlog(pulsarish, topic) == 0
    assert pulsarish("sub", "clear", topic, "t", "-y").returncode == 3


def test_a_subscription_is_reset(pulsarish: Pulsarish, topic: str) -> None:
    """1.4.6: to a word, a message or a time."""
    _fill(pulsarish, topic, 5)
    ids = [row["messageId"] for row in _objects(pulsarish("consume", topic, "--exit").stdout)]
    places = (
        (ids[3], 2),
        ("earliest", 5),
        ("latest", 0),
        ("2020-01-01", 5),
        ("2999-01-01T00:00Z", 0),
        ("0001-01-01", 5),
    )
    for where, left in places:
        done = pulsarish("sub", "reset", topic, "s", "--to", where, "-y")
        assert (done.returncode, _backlog(pulsarish, topic)) == (0, left), (where, done.stderr)
    assert pulsarish("sub", "reset", topic, "s", "--to", "yesterday", "-y").returncode == 2
    assert pulsarish("sub", "reset", topic, "s", "--to", "earliest").returncode == 2


def test_a_backlog_is_told_in_entries(pulsarish: Pulsarish, topic: str) -> None:
    """That is what it counts: a batch of five, which is one entry, was called one message."""
    assert pulsarish("produce", topic, "-m", "1").returncode == 0
    assert pulsarish("sub", "create", topic, "s").returncode == 0
    assert pulsarish("produce", topic, stdin=b"1\n2\n3\n4\n5\n").returncode == 0
    questions = {
        ("delete",): f'Delete subscription "s" of persistent://public/default/{topic} with a backlog of 1 entry',
        ("skip", "-n", "1"): f'Subscription "s" of persistent://public/default/{topic}, skip 1 of 1 entry',
        ("reset", "--to", "earliest"): f'Subscription "s" of persistent://public/default/{topic}, reset to earliest, '
        "with a backlog of 1 entry",
    }
    for command, question in questions.items():
        refused = pulsarish("sub", command[0], topic, "s", *command[1:])
        assert refused.stderr.decode().splitlines()[0] == f"error: {question}"


def test_policies_that_are_no_json_are_told_whole(pulsarish: Pulsarish, topic: str) -> None:
    """The colon of an object made two lines of what was wrong."""
    assert pulsarish("topic", "create", topic).returncode == 0
    what, why, hint = pulsarish("topic", "policies", topic, "--set", 'retention={"a": 1').stderr.decode().splitlines()
    assert what == "error: the value of --set retention is not JSON"
    assert why.endswith('in {"a": 1')
    assert hint.startswith("write a number")


def test_a_subscription_is_created_where_one_says(pulsarish: Pulsarish, topic: str) -> None:
    """1.9.1: latest unless said otherwise; not twice, and not on a topic that does not exist."""
    _fill(pulsarish, topic, 3)
    assert pulsarish("sub", "create", topic, "all", "--from", "earliest").returncode == 0
    assert pulsarish("sub", "create", topic, "none").returncode == 0
    assert (_backlog(pulsarish, topic, "all"), _backlog(pulsarish, topic, "none")) == (3, 0)
    assert pulsarish("sub", "create", topic, "all").returncode == 9
    assert pulsarish("sub", "create", topic, "x", "--from", "now").returncode == 2
    assert pulsarish("sub", "create", f"{topic}nowhere", "x").returncode == 3


def test_delayed_messages_that_nobody_waits_for_are_not_said_to_be_none(pulsarish: Pulsarish, topic: str) -> None:
    """6.1: the broker never looked at them, so it can neither count nor deny them."""
    pulsarish("produce", topic, "-m", "later", "--deliver-after", "3600")
    done = pulsarish("topic", "delayed", topic, "-o", "table")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.endswith(b" waits for delayed messages\n")


def test_delayed_messages_are_shown_and_taken_back(broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """6.1 (beyond Pulsar): what is due when, and one message that is not wanted any more."""
    pulsarish("topic", "create", topic)
    with Client(broker.service_url) as client, client.subscribe(topic, "s", type="shared") as consumer:
        with client.create_producer(topic) as producer:
            ids = [producer.send(b"%d" % number, deliver_at_ms=4_102_444_800_000 + number) for number in range(3)]
            producer.send(b"now")
        assert consumer.receive(60).value == b"now"
        rows = _objects(pulsarish("topic", "delayed", topic, "--step", "3600").stdout)
        assert rows == [{"from": "2100-01-01T00:00:00+00:00", "messages": 3}]
        assert pulsarish("sub", "cancel", topic, "s", str(ids[1])).returncode == 2
        assert pulsarish("sub", "cancel", topic, "s", str(ids[1]), "-y").returncode == 0
        assert pulsarish("sub", "cancel", topic, "s", str(ids[1]), "-y").returncode == 3
    assert _backlog(pulsarish, topic) == 3


def test_what_exists_has_an_exit_code_of_its_own(pulsarish: Pulsarish, topic: str) -> None:
    """Code 9 for topics, subscriptions and namespaces; scripts may also say that it is well."""
    assert pulsarish("topic", "create", topic, "-p", "2").returncode == 0
    again = pulsarish("topic", "create", topic, "-p", "2")
    assert (again.returncode, b"exists" in again.stderr) == (9, True)
    made = pulsarish("topic", "create", topic, "-p", "2", "--if-not-exists")
    assert (made.returncode, json.loads(made.stdout)["partitions"]) == (0, 2)
    other = pulsarish("topic", "create", topic, "--if-not-exists")
    assert (other.returncode, b"has 2 partitions, not 0" in other.stderr) == (9, True)
    assert pulsarish("sub", "create", topic, "s").returncode == 0
    assert pulsarish("sub", "create", topic, "s").returncode == 9
    assert pulsarish("namespace", "create", "public/default").returncode == 9


def test_messages_are_sent_without_batches_on_demand(pulsarish: Pulsarish, topic: str) -> None:
    """Each has an entry, and so an id, of its own."""
    ids = pulsarish("produce", topic, "-m", "a", "-m", "b", "--no-batching").stdout.decode().split()
    assert len({each.rpartition(":")[0] for each in ids}) == 2
    assert pulsarish("produce", topic, "-m", "a", "--no-batching", "--batch-by-key").returncode == 2


def test_lists_count_messages_also_after_a_restart(lonely: Pulsarish, tmp_path: Path) -> None:
    """1,001 in batches, 10 of them acknowledged: what is stored and what is unread, of the topic and its partitions."""
    with RunningBroker(tmp_path / "data") as broker:
        where = ("--data-dir", str(broker.data_dir))
        assert lonely("topic", "create", "t", "-p", "2", *where).returncode == 0
        assert lonely("sub", "create", "t", "s", "--from", "earliest", *where).returncode == 0
        assert lonely("produce", "t", *where, stdin=b"x\n" * 1001).returncode == 0
        assert lonely("consume", "t", "-s", "s", "-n", "10", "--exit", *where).returncode == 0
        for _ in range(2):
            (row,) = _objects(lonely("topic", "list", *where).stdout)
            assert (row["messages"], row["unread"]) == (1001, 991)
            (sub,) = _objects(lonely("sub", "list", "t", *where).stdout)
            assert sub["unread"] == 991
            broker.restart()


@pytest.mark.pulsar
def test_an_apache_pulsar_tells_entries_and_no_messages(
    lonely: Pulsarish, apache_pulsar: ApachePulsar, topic: str
) -> None:
    """What it does not tell is null, and nothing is made up."""
    topic = f"{topic}-{uuid4().hex}"  # it lives longer than a run of tests
    where = ("--url", apache_pulsar.service_url, "--http-url", apache_pulsar.http_url)
    assert lonely("produce", topic, "-m", "x", *where).returncode == 0
    assert lonely("sub", "create", topic, "s", "--from", "earliest", *where).returncode == 0
    (row,) = [row for row in _objects(lonely("topic", "list", *where).stdout) if row["topic"].endswith(f"/{topic}")]
    assert (row["messages"], row["unread"], row["msgBacklog"]) == (None, None, 1)
    assert b"MSGBACKLOG" in lonely("topic", "list", "-o", "table", *where).stdout
