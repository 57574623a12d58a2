# SPDX-License-Identifier: Apache-2.0
"""The futures of acks with receipt, against a broker that answers, refuses or goes away as drawn."""

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConnectionLostError, ServerError, UsageError
from broker_core.base.positions import MessageId, Position
from broker_core.client import AsyncClient, ClientConfig, ConsumerConfig
from broker_core.client.acks.ack_sender import AckSender, Receipt
from broker_core.client.connecting.attachment import Attachment
from broker_core.client.connecting.connection import Connection
from broker_core.client.connecting.network import Network
from broker_core.wire.commands import read_position, success
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run as run_scene
from tests.client.scripted_broker import ScriptedBroker, plain_entry

GROUP_MAX = 4


class Wire:
    """As much of a connection as acks need. ``covered``: what its commands acknowledge."""

    def __init__(self) -> None:
        self.requests: list[tuple[asyncio.Future[BaseCommand], pb.CommandAck]] = []
        self.plain: list[pb.CommandAck] = []
        self._ids = 0

    def next_request_id(self) -> int:
        self._ids += 1
        return self._ids

    def send(self, command: BaseCommand) -> None:
        self.plain.append(command.ack)

    def start_request(self, command: BaseCommand, request_id: int) -> asyncio.Future[BaseCommand]:
        answer: asyncio.Future[BaseCommand] = asyncio.get_running_loop().create_future()
        self.requests.append((answer, command.ack))
        return answer


class Place:
    """Where the acks go, or nowhere."""

    def __init__(self) -> None:
        self.connection: Wire | None = Wire()


def covers(ack: pb.CommandAck, entry: int) -> bool:
    """Whether a command acknowledges ``entry``."""
    entries = [read_position(each).entry for each in ack.message_id]
    return entry <= entries[0] if ack.ack_type == pb.CommandAck.Cumulative else entry in entries


class History:
    """One drawn history; futures that were given out, with the entry that each is about."""

    def __init__(self) -> None:
        self.place = Place()
        network = Network(ClientConfig(service_url="pulsar://nowhere"))
        config = ConsumerConfig(acknowledgment_group_time_s=1000, max_acknowledgment_group_size=GROUP_MAX)
        self.acks = AckSender(network, config, 0, -1, cast("Attachment", self.place))
        self.given: list[tuple[asyncio.Future[None], int]] = []
        self.answered: list[pb.CommandAck] = []
        self.settled: set[int] = set()

    def wire(self) -> Wire | None:
        return self.place.connection

    def ack(self, entry: int, cumulative: bool, how: str) -> None:
        receipt = None
        if how != "none":
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            receipt = Receipt(done, at_once=how == "at once")
            self.given.append((done, entry))
        (self.acks.cumulative if cumulative else self.acks.individual)(MessageId(1, entry), receipt)

    async def answer(self, which: int, refuse: bool) -> None:
        wire = self.wire()
        if wire is None or not wire.requests:
            return
        answer, ack = wire.requests.pop(which % len(wire.requests))
        if refuse:
            answer.set_exception(ServerError("refused"))
        else:
            self.answered.append(ack)
            answer.set_result(BaseCommand())
        await self.turn()

    async def lose(self) -> None:
        wire, self.place.connection = self.wire(), None
        if wire is not None:
            failure = ConnectionLostError("gone")
            for answer, _ in wire.requests:
                answer.set_exception(failure)
            self.acks.fail_waiting(failure)
        await self.turn()

    async def attach(self) -> None:
        if self.wire() is None:
            self.place.connection = Wire()
            self.acks.reattached(cast("Connection", self.place.connection), by_broker=False)
        await self.turn()

    async def turn(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        for number, (done, entry) in enumerate(self.given):
            if done.done() and number not in self.settled:
                self.settled.add(number)
                if done.exception() is None:
                    assert any(covers(ack, entry) for ack in self.answered), f"{entry} was not in a command"


steps = st.one_of(
    st.tuples(st.just("ack"), st.integers(0, 9), st.booleans(), st.sampled_from(["none", "grouped", "at once"])),
    st.tuples(st.just("answer"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("flush")),
    st.tuples(st.just("lose")),
    st.tuples(st.just("attach")),
)


@given(st.lists(steps, max_size=40))
def test_every_receipt_is_settled_once_by_its_own_command(drawn: list[tuple[object, ...]]) -> None:
    """3.1.9 (I3.6) a receipt succeeds only after a command with its ack was answered; none is left in the end."""

    async def run() -> None:
        history = History()
        for kind, *rest in drawn:
            if kind == "ack":
                history.ack(*rest)  # type: ignore[arg-type] # as drawn
            elif kind == "answer":
                await history.answer(*rest)  # type: ignore[arg-type]
            elif kind == "flush":
                history.acks.flush()
            elif kind == "lose":
                await history.lose()
            else:
                await history.attach()
        history.acks.flush()
        while (wire := history.wire()) is not None and wire.requests:
            await history.answer(0, False)
        await history.turn()
        assert len(history.settled) == len(history.given)
        history.acks.close()

    asyncio.run(run())


def test_a_group_with_a_receipt_is_sent_when_it_is_full() -> None:
    """3.1.2, 3.1.9 receipts wait for their group: by number, then one command and one answer for all."""

    async def run() -> None:
        history = History()
        wire = history.wire()
        assert wire is not None
        for entry in range(GROUP_MAX - 1):
            history.ack(entry, False, "grouped")
        assert wire.requests == []
        history.ack(GROUP_MAX, False, "none")
        assert len(wire.requests) == 1
        assert [read_position(each) for each in wire.requests[0][1].message_id] == [
            Position(1, each) for each in (0, 1, 2, 4)
        ]
        await history.answer(0, False)
        assert len(history.settled) == GROUP_MAX - 1
        history.acks.close()

    asyncio.run(run())


def test_a_receipt_without_a_connection_fails_and_its_ack_stays() -> None:
    """3.1.9, 3.1.12 the call fails at once; the ack itself goes out with the next connection."""

    async def run() -> None:
        history = History()
        await history.lose()
        history.ack(3, False, "grouped")
        await history.turn()
        failure = history.given[0][0].exception()
        assert isinstance(failure, ConnectionLostError)
        assert "sent on the next one" in str(failure)
        await history.attach()
        wire = history.wire()
        assert wire is not None
        assert [covers(ack, 3) for ack in wire.plain] == [True]
        history.acks.close()

    asyncio.run(run())


def test_a_receipt_of_what_a_seek_has_dropped_fails() -> None:
    """3.1.9, 1.4.6 acknowledged while it was under way, the message comes again; the call said that it would not."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        asked: list[int] = []
        broker.handlers[BaseCommand.SEEK] = lambda peer, command: asked.append(command.seek.request_id)
        consumer = await client.subscribe("t", "s", ack_receipt_enabled=True, acknowledgment_group_time_s=0.2)
        peer = broker.peers[0]
        peer.deliver(0, plain_entry(b"a"))
        message = await consumer.receive(WAIT_S)
        seeking = asyncio.ensure_future(consumer.seek("earliest"))
        await broker.until(lambda: bool(asked))
        acknowledging = asyncio.ensure_future(consumer.acknowledge(message))
        await asyncio.sleep(0)  # it has begun
        peer.send(success(asked[0]))
        await seeking
        with pytest.raises(UsageError, match="moved"):
            await acknowledging
        assert peer.count(BaseCommand.ACK) == 0

    run_scene(play)
