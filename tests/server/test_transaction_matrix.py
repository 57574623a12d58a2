# SPDX-License-Identifier: Apache-2.0
"""Each command of a transaction in each state of it, on raw connections: before and after a kill of the broker.

``EXPECTED`` is the whole table. Each of its cells is a transaction that has sent a0 to a topic of its own, where m0 is
an ordinary message that a consumer holds. The command is sent three times, so late and repeated ones are the same
cell; then the transaction is ended, and what readers and the subscription see must follow from its one outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import pytest

from broker_core.base.errors import InvalidTxnStatusError
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from tests.server.transaction_client import (
    INVALID_STATUS,
    MINUTE_MS,
    NOT_ALLOWED,
    NOT_FOUND,
    OK,
    TransactionClient,
    entry,
    send_frame,
)

SEND, ADD_PARTITION, ADD_SUBSCRIPTION, ACK, COMMIT, ABORT = (
    "SEND", "ADD_PARTITION", "ADD_SUBSCRIPTION", "ACK", "END commit", "END abort",
)  # fmt: skip
OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED, TIMED_OUT, NEVER = (
    "open", "committing", "committed", "aborting", "aborted", "timed out", "never seen",
)  # fmt: skip

_OVER: Final = INVALID_STATUS
EXPECTED: Final = {
    #                   OPEN  COMMITTING   COMMITTED    ABORTING     ABORTED      TIMED_OUT    NEVER
    SEND:             (OK,   NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED),
    ADD_PARTITION:    (OK,   _OVER,       _OVER,       _OVER,       _OVER,       _OVER,       NOT_FOUND),
    ADD_SUBSCRIPTION: (OK,   _OVER,       _OVER,       _OVER,       _OVER,       _OVER,       NOT_FOUND),
    ACK:              (OK,   _OVER,       _OVER,       _OVER,       _OVER,       _OVER,       NOT_FOUND),
    COMMIT:           (OK,   OK,          OK,          _OVER,       _OVER,       _OVER,       NOT_FOUND),
    ABORT:            (OK,   _OVER,       _OVER,       OK,          OK,          OK,          NOT_FOUND),
}  # fmt: skip
STATES: Final = (OPEN, COMMITTING, COMMITTED, ABORTING, ABORTED, TIMED_OUT, NEVER)
LASTING: Final = (OPEN, COMMITTED, ABORTED, TIMED_OUT, NEVER)
"""States that a transaction is still in after the broker was killed."""
OUTCOMES: Final = {COMMITTING: True, COMMITTED: True, ABORTING: False, ABORTED: False, TIMED_OUT: False, NEVER: None}
TIMES: Final = 3


class Cell(NamedTuple):
    """A command in a state."""

    command: str
    state: str

    @property
    def expected(self) -> int:
        return EXPECTED[self.command][STATES.index(self.state)]


class Party(TransactionClient):
    """A producer and a consumer of one topic."""

    def join(self, topic: str) -> None:
        self.topic = topic
        must_succeed(self.open_producer(topic))
        must_succeed(self.subscribe(topic, "s", permits=100, kind=CommandSubscribe.Shared))

    def hold_m0(self) -> MessageIdData:
        """The ordinary message, which is the first of the topic."""
        command = self.next_command()
        assert command.type == BaseCommand.MESSAGE
        self.m0 = command.message.message_id
        return self.m0

    def prepare(self, state: str) -> TxnId:
        """A transaction that is in ``state``, or about to be with the next frame."""
        self.send_entry(0, 0, entry("m0"))
        assert {self.next_command().type, self.next_command().type} == {BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}
        if state == NEVER:
            return TxnId(5, 2**40)
        name = self.new(ttl_ms=150 if state == TIMED_OUT else 10 * MINUTE_MS)
        assert self.send_in(name, "a0", sequence_id=1).type == BaseCommand.SEND_RECEIPT
        if state in (COMMITTED, ABORTED):
            self.socket.sendall(self.frames(COMMIT if state == COMMITTED else ABORT, name, 1)[0])
            assert self.codes(1) == [OK]
        return name

    def frames(self, command: str, name: TxnId, times: int) -> list[bytes]:
        if command == SEND:
            return [send_frame(name, entry("a1", 2), sequence_id=2)] * times
        if command in (COMMIT, ABORT):
            return [encode_command(self.end_command(name, commit=command == COMMIT)) for _ in range(times)]
        return [encode_command(self._of_kind(command, name)) for _ in range(times)]

    def _of_kind(self, kind: str, name: TxnId) -> BaseCommand:
        asked = {
            "request_id": self.request_id(),
            "txnid_most_bits": name.most_bits,
            "txnid_least_bits": name.least_bits,
        }
        if kind == ACK:
            asked |= {"consumer_id": 0, "ack_type": CommandAck.Individual}
            command = BaseCommand(type=BaseCommand.ACK, ack=asked)
            command.ack.message_id.add().CopyFrom(self.m0)
        elif kind == ADD_PARTITION:
            command = BaseCommand(type=BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=asked)
            command.addPartitionToTxn.partitions.extend([self.topic, self.topic, "another", "not//valid"])
        else:
            command = BaseCommand(type=BaseCommand.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=asked)
            command.addSubscriptionToTxn.subscription.add(topic=self.topic, subscription="s")
        return command

    def await_deadline(self, cell: Cell, name: TxnId) -> None:
        """Return when a transaction that is to time out has."""
        while cell.state == TIMED_OUT:
            self.socket.sendall(self.frames(ADD_SUBSCRIPTION, name, 1)[0])
            if self.codes(1) != [OK]:
                return

    def codes(self, count: int) -> list[int]:
        """The codes of so many answers, whatever messages come beside them."""
        found: list[int] = []
        while len(found) < count:
            command = self.next_command()
            if command.type != BaseCommand.MESSAGE:
                found.append(code_of(command))
        return found


def code_of(answer: BaseCommand) -> int:
    """OK, or the error of an answer of any kind."""
    if answer.type == BaseCommand.SEND_RECEIPT:
        return OK
    if answer.type == BaseCommand.SEND_ERROR:
        return answer.send_error.error
    (response,) = [value for field, value in answer.ListFields() if field.name != "type"]
    return response.error if response.HasField("error") else OK


def received(service_url: str, topic: str, subscription: str) -> list[str]:
    """Messages that a subscription gives, until an ordinary one that is sent now comes; what is sent so, too."""
    last = f"end of {subscription}"
    with RawClient(service_url) as other:
        must_succeed(other.open_producer(topic, 77))
        must_succeed(other.subscribe(topic, subscription, 78, kind=CommandSubscribe.Shared))
        other.flow(78, 1000)
        other.send_entry(77, 0, entry(last))
        found: list[str] = []
        while True:
            frame = other.next_frame()
            if commands.parse_command(frame.command).type != BaseCommand.MESSAGE:
                continue
            if frame.body.endswith(last.encode()):
                return sorted(found)
            found.append(frame.body[-2:].decode(errors="replace"))


def run(client: Party, cell: Cell, name: TxnId, service_url: str) -> None:
    """Send the command, three times in one write and once more; then look at all that came of it."""
    first = client.frames(cell.command, name, TIMES)
    opening = b"".join(client.frames(COMMIT if cell.state == COMMITTING else ABORT, name, 1))
    if cell.state in (COMMITTING, ABORTING):
        client.socket.sendall(opening + b"".join(first))
        codes = client.codes(1 + TIMES)
        assert sorted(codes) == sorted([OK, *[cell.expected] * TIMES])
    else:
        client.socket.sendall(b"".join(first))
        assert client.codes(TIMES) == [cell.expected] * TIMES
    client.socket.sendall(client.frames(cell.command, name, 1)[0])
    assert client.codes(1) == [cell.expected]
    outcome = OUTCOMES.get(cell.state, cell.command != ABORT)
    if outcome is not None:
        client.socket.sendall(client.frames(COMMIT if outcome else ABORT, name, 1)[0])
        assert client.codes(1) == [OK]
    client.close()
    is_applied = cell.expected == OK and bool(outcome)
    sent = ["m0"] + ["a0"] * bool(outcome) + ["a1"] * (TIMES + 1) * (cell.command == SEND and is_applied)
    assert received(service_url, client.topic, "look") == sorted(sent)
    kept = sent[1:] if cell.command == ACK and is_applied else sent
    assert received(service_url, client.topic, "s") == sorted([*kept, "ok"])


@pytest.mark.parametrize("cell", [Cell(*each) for each in product(EXPECTED, STATES)], ids=" ".join)
def test_each_command_in_each_state(broker: RunningBroker, topic: str, cell: Cell) -> None:
    """9.4.1, 9.6, 9.8.1 (T8, T17): the code of the table, each time, and the one outcome of the transaction."""
    with Party(broker.service_url) as client:
        client.join(topic)
        name = client.prepare(cell.state)
        client.m0 = m0_of(broker.service_url, topic)
        client.await_deadline(cell, name)
        run(client, cell, name, broker.service_url)


def m0_of(service_url: str, topic: str) -> MessageIdData:
    """The id of the first message."""
    with Party(service_url) as other:
        must_succeed(other.subscribe(topic, "first", permits=1))
        return other.hold_m0()


AFTER_A_KILL: Final = [Cell(*each) for each in product(EXPECTED, LASTING)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, dict[Cell, TxnId]]]:
    """A broker that was killed when all cells were prepared, and started again when deadlines were over."""
    names: dict[Cell, TxnId] = {}
    with RunningBroker(tmp_path_factory.mktemp("killed") / "data") as running:
        for cell in AFTER_A_KILL:
            with Party(running.service_url) as client:
                client.join(topic_of(cell))
                names[cell] = client.prepare(cell.state)
        running.kill()
        running.start()
        yield running, names
        assert "Traceback" not in running.stderr


def topic_of(cell: Cell) -> str:
    return f"persistent://public/default/{'-'.join(cell).replace(' ', '-')}"


@pytest.mark.parametrize("cell", AFTER_A_KILL, ids=" ".join)
def test_each_command_in_each_state_after_a_kill(killed: tuple[RunningBroker, dict[Cell, TxnId]], cell: Cell) -> None:
    """9.5.3, 9.6 (T1, T8, T17): as if the broker had never been away."""
    broker, names = killed
    with Party(broker.service_url) as client:
        client.m0 = m0_of(broker.service_url, topic_of(cell))
        client.join(topic_of(cell))
        client.await_deadline(cell, names[cell])
        run(client, cell, names[cell], broker.service_url)


@pytest.mark.parametrize("commit", [True, False])
def test_commands_that_come_in_another_order(broker: RunningBroker, topic: str, commit: bool) -> None:
    """9.3.2, 9.5.1: ACK and SEND before they are announced, announced behind, and the end behind all, in one write."""
    with Party(broker.service_url) as client:
        client.join(topic)
        name = client.prepare(OPEN)
        client.m0 = m0_of(broker.service_url, topic)
        kinds = (ACK, SEND, ADD_SUBSCRIPTION, ADD_PARTITION, COMMIT if commit else ABORT, ADD_PARTITION, SEND, ACK)
        client.socket.sendall(b"".join(client.frames(kind, name, 1)[0] for kind in kinds))
        late = [INVALID_STATUS, NOT_ALLOWED, InvalidTxnStatusError.code]
        assert sorted(client.codes(len(kinds))) == sorted([*[OK] * 5, *late])
    assert received(broker.service_url, topic, "look") == (["a0", "a1", "m0"] if commit else ["m0"])
    assert received(broker.service_url, topic, "s") == (["a0", "a1", "ok"] if commit else ["m0", "ok"])
