# SPDX-License-Identifier: Apache-2.0
"""Open transactions as the admin REST shows them, and their end by an administrator, against a broker process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from broker_core.base.settings import Settings
from broker_core.broker.coordinator import held_topics
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe
from tests.server.rights_world import WHO, furnish, hello, secured
from tests.server.server_thread import ServerThread
from tests.server.transaction_client import INVALID_STATUS, MINUTE_MS, OK, TransactionClient, entry

BASE: Final = "/admin/v3/transactions"
NEVER: Final = f"9/{10**9}"


@pytest.fixture
def v3(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http_url}{BASE}", timeout=60) as client:
        yield client


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(broker.service_url) as client:
        yield client


def path_of(name: TxnId) -> str:
    return f"{name.most_bits}/{name.least_bits}"


def text_of(name: TxnId) -> str:
    return f"({name.most_bits},{name.least_bits})"


def get(v3: httpx.Client, path: str, status: int = 200) -> Any:
    answer = v3.get(f"/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def acknowledge(client: TransactionClient, name: TxnId, ledger: int, entry_id: int, *, cumulative: bool) -> None:
    """Acknowledge, by consumer 0, under a transaction."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = 0
    command.ack.ack_type = CommandAck.Cumulative if cumulative else CommandAck.Individual
    command.ack.request_id = client.request_id()
    command.ack.txnid_most_bits, command.ack.txnid_least_bits = name
    command.ack.message_id.add(ledgerId=ledger, entryId=entry_id)
    client.tell(command)
    while (answer := client.next_command()).type != BaseCommand.ACK_RESPONSE:
        assert answer.type == BaseCommand.MESSAGE
    assert not answer.ackResponse.HasField("error")


def test_coordinators_are_told(v3: httpx.Client, client: TransactionClient, broker: RunningBroker) -> None:
    """9.9.1: ids, the broker, the highest id given, and how many are open."""
    assert get(v3, "coordinators")[15] == {"id": 15, "brokerServiceUrl": broker.service_url}
    name = client.new(7)
    found = get(v3, "coordinatorStats?coordinatorId=7")
    assert found == {
        "state": "Ready",
        "leastSigBits": name.least_bits,
        "lowWaterMark": name.least_bits - 1,
        "ongoingTxnSize": 1,
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }
    every = get(v3, "coordinatorStats")
    assert (len(every), every["7"], every["8"]["leastSigBits"]) == (16, found, -1)
    get(v3, "coordinatorStats?coordinatorId=16", 404)
    get(v3, "coordinatorStats?coordinatorId=x", 400)


def test_a_transaction_is_shown_with_all_that_it_touched(
    v3: httpx.Client, client: TransactionClient, topic: str
) -> None:
    """9.9.1: status, times, first entries, subscriptions, and how many messages wait for its end."""
    must_succeed(client.subscribe(topic, "s", 0))
    must_succeed(client.open_producer(topic))
    client.send_entry(0, 0, entry("n0"))
    first = client.next_command().send_receipt.message_id
    name, later = client.new(ttl_ms=50_000), client.new(ttl_ms=2 * MINUTE_MS)
    sent = client.send_in(name, "a0", sequence_id=1).send_receipt.message_id
    client.send_in(later, "b0", sequence_id=2)
    client.send_entry(0, 3, entry("n1", 3))
    assert client.next_command().type == BaseCommand.SEND_RECEIPT
    acknowledge(client, name, first.ledgerId, first.entryId, cumulative=True)

    shown = get(v3, f"transactionMetadata/{path_of(name)}")
    opened_ms = shown.pop("openTimestamp")
    assert opened_ms > 1_600_000_000_000
    start = f"{sent.ledgerId}:{sent.entryId}"
    acked = {"cumulativeAckPosition": f"{first.ledgerId}:{first.entryId}"}
    assert shown == {
        "txnId": text_of(name),
        "status": "OPEN",
        "timeoutAt": 50_000,
        "producedPartitions": {
            topic: {"startPosition": start, "aborted": False, "holdsBack": True, "messagesHeldBack": 3}
        },
        "ackedPartitions": {topic: {"s": acked}},
    }
    other = get(v3, f"transactionMetadata/{path_of(later)}")["producedPartitions"][topic]
    assert (other["holdsBack"], other["messagesHeldBack"]) == (False, 0)
    slow = get(v3, f"slowTransactions/{MINUTE_MS}")
    assert (text_of(later) in slow, text_of(name) in slow) == (True, False)
    assert text_of(later) not in get(v3, f"slowTransactions/1000?coordinatorId={later.most_bits + 1}")

    place = topic.removeprefix("persistent://")
    buffer = get(v3, f"transactionBufferStats/{place}?lowWaterMarks=true")
    assert (buffer["state"], buffer["ongoingTxnSize"], buffer["totalAbortedTransactions"]) == ("Ready", 2, 0)
    assert buffer["maxReadPosition"] == f"{first.ledgerId}:{first.entryId}"
    assert str(name.most_bits) in buffer["lowWaterMarks"]
    assert buffer["holder"] == {"txnId": text_of(name), "openTimestamp": opened_ms}
    assert get(v3, f"transactionInBufferStats/{place}/{path_of(name)}") == {"startPosition": start, "aborted": False}
    assert get(v3, f"transactionInBufferStats/{place}/{NEVER}") == {"aborted": False}
    pending = get(v3, f"pendingAckStats/{place}/s")
    assert (pending["state"], pending["ongoingTxnSize"], "lowWaterMarks" in pending) == ("Ready", 1, False)
    assert get(v3, f"transactionInPendingAckStats/{place}/s/{path_of(name)}") == acked
    for path in (f"transactionBufferStats/{place}x", f"pendingAckStats/{place}/nope", f"transactionMetadata/{NEVER}"):
        get(v3, path, 404)
    get(v3, "transactionMetadata/0/x", 400)


def test_positions_say_whether_they_are_pending(v3: httpx.Client, client: TransactionClient, topic: str) -> None:
    """9.9.1: acknowledged before, pending, neither, and not there."""
    must_succeed(client.subscribe(topic, "s", 0, kind=CommandSubscribe.Shared))
    must_succeed(client.open_producer(topic))
    ids = []
    for number in range(3):
        client.send_entry(0, number, entry(f"n{number}", number))
        ids.append(client.next_command().send_receipt.message_id)
    ledger, name = ids[0].ledgerId, client.new()
    acknowledge(client, name, ledger, ids[1].entryId, cumulative=False)
    place = f"positionStatsInPendingAck/{topic.removeprefix('persistent://')}/s/{ledger}"
    states = [get(v3, f"{place}/{each}")["state"] for each in (*(each.entryId for each in ids), 999)]
    assert states == ["NotInPendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition"]
    assert get(v3, f"{place}/{ids[1].entryId}?batchIndex=0") == {"state": "PendingAck"}
    assert client.end(name, commit=True).code == OK
    acknowledge(client, other := client.new(), ledger, ids[0].entryId, cumulative=False)
    assert client.end(other, commit=True).code == OK
    assert get(v3, f"{place}/{ids[1].entryId}") == {"state": "MarkDelete"}


def test_an_administrator_aborts(v3: httpx.Client, client: TransactionClient, topic: str) -> None:
    """9.9.2: as the owner's abort; a repeat is a success, one that was committed is a conflict."""
    must_succeed(client.open_producer(topic))
    name, committed = client.new(), client.new()
    client.send_in(name, "a0")
    assert client.end(committed, commit=True).code == OK
    statuses = [v3.post(f"/abortTransaction/{each}").status_code for each in (*[path_of(name)] * 2, NEVER)]
    assert statuses == [204, 204, 404]
    assert v3.post(f"/abortTransaction/{path_of(committed)}").status_code == 409
    assert client.end(name, commit=True).code == INVALID_STATUS
    place = topic.removeprefix("persistent://")
    assert get(v3, f"transactionInBufferStats/{place}/{path_of(name)}") == {"aborted": True}
    assert get(v3, f"transactionBufferStats/{place}")["totalAbortedTransactions"] == 1
    get(v3, f"transactionMetadata/{path_of(name)}", 404)


def test_what_is_not_there_is_refused_with_a_reason(v3: httpx.Client) -> None:
    """9.9.1: internal stats, and another number of coordinators."""
    for path in (
        "coordinatorInternalStats/0",
        "transactionBufferInternalStats/a/b/c",
        "pendingAckInternalStats/a/b/c/s",
    ):
        assert "no logs of their own" in get(v3, path, 405)["reason"]
    found = [v3.post("/transactionCoordinator/replicas", json=count).status_code for count in (16, 17)]
    assert found == [406, 405]


def test_a_restart_forgets_nothing_of_it(data_dir: Path, topic: str) -> None:
    """9.9.1: topics and subscriptions of transactions that nobody has used since are shown, too."""
    with RunningBroker(data_dir) as broker, TransactionClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "s", 0))
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, entry("n0"))
        first = client.next_command().send_receipt.message_id
        name = client.new()
        acknowledge(client, name, first.ledgerId, first.entryId, cumulative=False)
    with RunningBroker(data_dir) as broker, httpx.Client(base_url=f"{broker.http_url}{BASE}", timeout=60) as v3:
        shown = get(v3, f"transactionMetadata/{path_of(name)}")
        assert shown["ackedPartitions"] == {topic: {"s": {}}}
        assert get(v3, "coordinatorStats?coordinatorId=0")["leastSigBits"] >= name.least_bits


def test_no_transactions_no_answers(data_dir: Path) -> None:
    """9.2.3, 9.9.1: where they are off the setting is named."""
    with RunningBroker(data_dir, {"transactionCoordinatorEnabled": False}) as broker:
        for path in ("coordinators", "transactionMetadata/0/0", "slowTransactions/0"):
            answer = httpx.get(f"{broker.http_url}{BASE}/{path}", timeout=60)
            assert (answer.status_code, "transactionCoordinatorEnabled" in answer.text) == (503, True)


def test_its_owner_sees_a_transaction_and_no_other_role() -> None:
    """9.3.3, 9.9.1: others learn nothing, not even whether it is there."""
    with secured() as world:
        furnish(world, "acme/ns")
        with TransactionClient(world.server.service_url, connect=False) as client:
            assert client.ask(hello(WHO["nobody"])).HasField("connected")
            name = client.new()
            path = f"{BASE}/transactionMetadata"
            owner, other = world.http(WHO["nobody"]), world.http(WHO["produces everywhere"])
            assert owner.ask("GET", f"{path}/{path_of(name)}").content["owner"] == "nobody"
            refusals = [other.ask("GET", f"{path}/{each}") for each in (path_of(name), NEVER)]
            assert refusals[0] == refusals[1] == (401, {"reason": "This operation requires super-user access"})
            assert owner.ask("GET", f"{path}/{NEVER}").status == 401
            for who in ("superuser", "a proxy for a role without rights"):
                asking = world.http(WHO[who])
                assert asking.ask("GET", f"{path}/{path_of(name)}").status == 200
                asking.close()
            assert owner.ask("POST", f"{BASE}/abortTransaction/{path_of(name)}").status == 401
            owner.close()
            other.close()


def test_health_tells_of_topics_that_are_held_back(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """9.9.3: behind its first line, which stays ok, for the broker is well."""
    monkeypatch.setattr(held_topics, "LONG_TRANSACTION_S", 0)
    with ServerThread(SimDisk(), Settings()) as server, TransactionClient(server.service_url) as client:
        must_succeed(client.open_producer(topic))
        name = client.new()
        client.send_in(name, "a0")
        first, line = httpx.get(f"{server.http_url}/admin/v2/brokers/health", timeout=60).text.splitlines()
        assert (first, text_of(name) in line, topic in line) == ("ok", True, True)
        assert client.end(name, commit=True).code == OK
        assert httpx.get(f"{server.http_url}/admin/v2/brokers/health", timeout=60).text == "ok"
