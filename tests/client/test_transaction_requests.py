# SPDX-License-Identifier: Apache-2.0
"""Requests of transactions, and what a client makes of the answers, against a scripted broker."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.base.errors import (
    InvalidTxnStatusError,
    NotAllowedError,
    OperationTimeoutError,
    PersistenceServerError,
    SendUnconfirmedError,
    ServerError,
    ServiceNotReadyError,
    TransactionCoordinatorNotFoundError,
    TransactionHasOperationFailedError,
    TransactionNotFoundError,
    TransactionUnconfirmedError,
)
from broker_core.client import AsyncClient, TransactionState
from broker_core.wire.commands import error
from broker_core.wire.entry import read_metadata
from broker_core.wire.frames import Frame
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.client.helpers import WAIT_S
from tests.client.scenes import run
from tests.client.scripted_broker import Peer, ScriptedBroker, partitions, plain_entry
from tests.client.scripted_coordinators import KINDS, answered, asked, coordinating, losing_first, refusing, requests
from tests.wire.single_frames import message_frame_head


def transaction_of(frame: Frame) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The transaction of an entry by its SEND, and by its metadata."""
    command, body = frame
    send, metadata = BaseCommand.FromString(command).send, read_metadata(body)
    by_send = (send.txnid_most_bits, send.txnid_least_bits) if send.HasField("txnid_most_bits") else None
    has_id = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
    return by_send, (metadata.txnid_most_bits, metadata.txnid_least_bits) if has_id else None


def sends(broker: ScriptedBroker) -> list[Frame]:
    return [frame for peer in broker.peers for _, frame in peer.sends]


# -- coordinators


def test_transactions_are_spread_over_coordinators() -> None:
    """Each in turn, from the second one on; each is looked up, and connected to, when it is first needed."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker, coordinators=3)
        begun = [(await client.new_transaction(2.5)).id.most_bits for _ in range(5)]
        assert begun == [1, 2, 0, 1, 2]
        connects = [
            each.tcClientConnectRequest.tc_id for each in requests(broker, BaseCommand.TC_CLIENT_CONNECT_REQUEST)
        ]
        assert connects == [1, 2, 0]
        named = [each.lookupTopic.topic.rpartition("-")[2] for each in requests(broker, BaseCommand.LOOKUP)]
        assert named == ["1", "2", "0"]
        assert {each.newTxn.txn_ttl_seconds for each in requests(broker, BaseCommand.NEW_TXN)} == {2500}
        assert len(requests(broker, BaseCommand.PARTITIONED_METADATA)) == 1

    run(play)


@pytest.mark.parametrize("tells", ["no partitions", "no topic", "refusal"])
def test_brokers_without_transactions_are_told(tells: str) -> None:
    """Whichever way they say so."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        if tells == "no partitions":
            broker.handlers[BaseCommand.PARTITIONED_METADATA] = partitions(0)
        elif tells == "refusal":
            broker.handlers[BaseCommand.TC_CLIENT_CONNECT_REQUEST] = lambda peer, command: peer.send(
                error(command.tcClientConnectRequest.request_id, NotAllowedError("Transactions are not enabled."))
            )
        else:
            missing = pb.CommandPartitionedTopicMetadataResponse

            def tell(peer: Peer, command: BaseCommand) -> None:
                said = missing(
                    request_id=command.partitionMetadata.request_id,
                    response=missing.Failed,
                    error=pb.TopicNotFound,
                    message="no such namespace",
                )
                peer.send(BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=said))

            broker.handlers[BaseCommand.PARTITIONED_METADATA] = tell
        with pytest.raises(NotAllowedError):
            await client.new_transaction()

    run(play)


def test_a_coordinator_that_has_moved_is_looked_up_again() -> None:
    """The same request goes to the next broker, under the same id."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.NEW_TXN] = refusing(TransactionCoordinatorNotFoundError("not loaded here"))
        await client.new_transaction()
        assert len({each.newTxn.request_id for each in requests(broker, BaseCommand.NEW_TXN)}) == 1
        assert len(requests(broker, BaseCommand.TC_CLIENT_CONNECT_REQUEST)) == 2

    run(play)


def test_a_coordinator_that_was_refused_may_be_asked_later() -> None:
    """For the next transaction; until then each attempt is told."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        await client.new_transaction()
        friendly = broker.handlers[BaseCommand.TC_CLIENT_CONNECT_REQUEST]
        broker.handlers[BaseCommand.TC_CLIENT_CONNECT_REQUEST] = lambda peer, command: peer.send(
            error(command.tcClientConnectRequest.request_id, NotAllowedError("Transactions are not enabled."))
        )
        broker.peers[0].transport.abort()
        with pytest.raises(NotAllowedError):
            await client.new_transaction()
        with pytest.raises(NotAllowedError):
            await client.new_transaction()
        broker.handlers[BaseCommand.TC_CLIENT_CONNECT_REQUEST] = friendly
        assert (await client.new_transaction()).state is TransactionState.OPEN

    run(play)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_survives_its_connection(kind: int) -> None:
    """It is sent again under the same id, behind the next TC_CLIENT_CONNECT."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[kind] = losing_first()
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        async with client.transaction() as txn:
            if kind == BaseCommand.ADD_SUBSCRIPTION_TO_TXN:
                await broker.until(lambda: broker.peers[-1].count(BaseCommand.FLOW) > 0)
                broker.peers[0].deliver(0, plain_entry(b"x"))
                message = await consumer.receive(WAIT_S)
                failed = consumer.acknowledge(message, wait=True, txn=txn)
                await asyncio.gather(failed, return_exceptions=True)
            await producer.send("m", txn=txn) if kind == BaseCommand.ADD_PARTITION_TO_TXN else None
        assert len({asked(each).request_id for each in requests(broker, kind)}) == 1
        assert len(requests(broker, kind)) == 2
        again = [int(each.type) for each in broker.peers[1].received]
        assert again.index(BaseCommand.TC_CLIENT_CONNECT_REQUEST) < again.index(kind)

    run(play)


def test_a_plain_error_is_an_answer() -> None:
    """Though coordinators should answer each request by its own command."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.NEW_TXN] = lambda peer, command: peer.send(
            error(command.newTxn.request_id, PersistenceServerError("no disk"))
        )
        with pytest.raises(PersistenceServerError, match="no disk"):
            await client.new_transaction()

    run(play)


def test_no_answer_is_told() -> None:
    """As from an Apache Pulsar that has too many transactions."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.NEW_TXN] = lambda peer, command: None
        with pytest.raises(OperationTimeoutError, match="transaction coordinator 0 gave no answer"):
            await client.new_transaction()

    run(play, operation_timeout_s=0.3)


# -- what takes part


def test_a_partition_is_registered_once_and_first() -> None:
    """Messages wait for the answer, others of the producer behind them; the id is in each SEND and each entry."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        held: list[tuple[Peer, BaseCommand]] = []
        broker.handlers[BaseCommand.ADD_PARTITION_TO_TXN] = lambda peer, command: held.append((peer, command))
        producer = await client.create_producer("t")
        async with client.transaction() as txn:
            sending = [asyncio.ensure_future(producer.send("a", txn=txn)) for _ in range(2)]
            sending.append(asyncio.ensure_future(producer.send("b")))
            flushing = asyncio.ensure_future(producer.flush())
            await broker.until(lambda: bool(held))
            assert not sends(broker)
            answered(*held[0])
            await asyncio.gather(*sending, flushing)
            await producer.send("c", txn=txn)
            mine = (txn.id.most_bits, txn.id.least_bits)
        assert [transaction_of(frame) for frame in sends(broker)] == [
            (mine, mine), (mine, mine), (None, None), (mine, mine),
        ]  # fmt: skip
        added = [each.addPartitionToTxn for each in requests(broker, BaseCommand.ADD_PARTITION_TO_TXN)]
        assert [list(each.partitions) for each in added] == [["persistent://public/default/t"]]

    run(play)


def test_a_refused_partition_fails_its_messages_and_the_transaction() -> None:
    """Messages of no transaction go on; the commit becomes an abort."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.ADD_PARTITION_TO_TXN] = refusing(InvalidTxnStatusError("not open"))
        producer = await client.create_producer("t")
        txn = await client.new_transaction()
        failed, sent = await asyncio.gather(producer.send("a", txn=txn), producer.send("b"), return_exceptions=True)
        assert isinstance(failed, InvalidTxnStatusError)
        assert not isinstance(sent, BaseException)
        with pytest.raises(TransactionHasOperationFailedError, match=r"transaction \(0,\d+\) was not committed"):
            await txn.commit()
        assert txn.state is TransactionState.ABORTED
        ends = requests(broker, BaseCommand.END_TXN)
        assert [each.endTxn.txn_action for each in ends] == [pb.ABORT]
        assert producer.window.messages == 0
        with pytest.raises(InvalidTxnStatusError, match="it is ABORTED"):
            await txn.commit()

    run(play)


def test_acknowledgements_name_what_they_are_about() -> None:
    """Each message of a batch by the set of all others, all in their order behind one registration."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        consumer = await client.subscribe("t", "s")
        await broker.until(lambda: broker.peers[0].count(BaseCommand.FLOW) > 0)
        producer = await client.create_producer("t", batching_max_publish_delay_s=60.0)
        for number in range(8):
            producer.enqueue(producer.outgoing(str(number)), None)
        await producer.flush()
        broker.peers[0].deliver(4, sends(broker)[0][1])
        broker.peers[0].deliver(5, plain_entry(b"x"))
        messages = [await consumer.receive(WAIT_S) for _ in range(9)]
        async with client.transaction() as txn:
            for message in [*messages[:2], messages[8]]:
                await consumer.acknowledge(message, txn=txn)
            await consumer.acknowledge_cumulative(messages[2], txn=txn)
            await consumer.acknowledge_cumulative(messages[7], wait=True, txn=txn)
        acks = [each.ack for each in requests(broker, BaseCommand.ACK)]
        ids = [ack.message_id[0] for ack in acks]
        bits = [format(each.ack_set[0], "08b") if each.ack_set else "" for each in ids]
        assert bits == ["11111110", "11111101", "", "11111000", ""]
        assert [each.entryId for each in ids] == [4, 4, 5, 4, 4]
        assert [each.batch_size for each in ids] == [8, 8, 0, 8, 8]
        assert [ack.ack_type for ack in acks] == [0, 0, 0, 1, 1]
        assert {(ack.txnid_most_bits, ack.txnid_least_bits) for ack in acks} == {txn.id}
        assert all(ack.HasField("request_id") for ack in acks)
        (added,) = requests(broker, BaseCommand.ADD_SUBSCRIPTION_TO_TXN)
        of = added.addSubscriptionToTxn.subscription[0]
        assert (of.topic, of.subscription) == ("persistent://public/default/t", "s")

    run(play)


def test_a_batch_that_comes_again_is_not_queued_twice() -> None:
    """As after an abort, from an Apache Pulsar: what is in the queue stays there, what was taken comes again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        consumer = await client.subscribe("t", "s", type="shared")
        await broker.until(lambda: broker.peers[0].count(BaseCommand.FLOW) > 0)
        producer = await client.create_producer("t", batching_max_publish_delay_s=60.0)
        for number in range(4):
            producer.enqueue(producer.outgoing(str(number)), None)
        await producer.flush()
        batch = sends(broker)[0][1]
        broker.peers[0].deliver(0, batch)
        taken = await consumer.receive(WAIT_S)
        txn = await client.new_transaction()
        await consumer.acknowledge(taken, wait=True, txn=txn)
        await txn.abort()
        broker.peers[0].transport.write(message_frame_head(0, 1, 0, -1, 1, None, len(batch)) + batch)
        await client.new_transaction()  # whose answer comes behind it
        again = [await consumer.receive(WAIT_S) for _ in range(4)]
        assert [message.value for message in again] == [b"1", b"2", b"3", b"0"]
        assert consumer.stats().queued_messages == 0

    run(play)


# -- lost connections


def test_a_message_is_not_sent_again_in_a_transaction() -> None:
    """It would be there twice: it fails with its connection, and so does the commit; others are sent again."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)

        def receive(peer: Peer, sequence_id: int) -> None:
            if peer is not broker.peers[0]:
                peer.receipt(sequence_id, sequence_id)

        broker.on_send = receive
        producer = await client.create_producer("t")
        txn = await client.new_transaction()
        within, plain = asyncio.ensure_future(producer.send("a", txn=txn)), asyncio.ensure_future(producer.send("b"))
        await broker.until(lambda: len(sends(broker)) == 2)
        broker.peers[0].transport.abort()
        with pytest.raises(SendUnconfirmedError):
            await within
        await plain
        assert [transaction_of(frame)[0] for frame in sends(broker)] == [txn.id, None, None]
        with pytest.raises(TransactionHasOperationFailedError) as caught:
            await txn.commit()
        assert isinstance(caught.value.__cause__, SendUnconfirmedError)
        assert txn.state is TransactionState.ABORTED

    run(play)


def test_a_receipt_may_overtake_those_of_a_transaction_only() -> None:
    """Else one is missing, and all is sent anew."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.on_send = lambda peer, sequence_id: None
        producer = await client.create_producer("t")
        async with client.transaction() as txn:
            within, plain = (
                asyncio.ensure_future(producer.send("a", txn=txn)),
                asyncio.ensure_future(producer.send("b")),
            )
            await broker.until(lambda: len(sends(broker)) == 2)
            broker.peers[0].receipt(1, 1)
            assert (await plain).entry == 1
            broker.peers[0].receipt(0, 2)
            assert (await within).entry == 2
            assert len(sends(broker)) == 2

    run(play)


@pytest.mark.parametrize("second", ["success", "not found", "other status"])
def test_a_commit_whose_answer_was_lost(second: str) -> None:
    """It is asked for again: the answer counts, but that the transaction is not known any more may mean both."""
    answers: dict[str, ServerError | None] = {
        "success": None,
        "not found": TransactionNotFoundError("gone"),
        "other status": InvalidTxnStatusError("aborting"),
    }

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = losing_first(
            lambda peer, command: answered(peer, command, answers[second])
        )
        txn = await client.new_transaction()
        if second == "success":
            await txn.commit()
            assert txn.state is TransactionState.COMMITTED
        elif second == "other status":
            with pytest.raises(InvalidTxnStatusError, match="aborting"):
                await txn.commit()
            assert txn.state is TransactionState.ERROR
            assert len(requests(broker, BaseCommand.END_TXN)) == 3
        else:
            for _ in range(2):
                with pytest.raises(TransactionUnconfirmedError, match="knows nothing of it any more") as caught:
                    await txn.commit()
                assert isinstance(caught.value.__cause__, TransactionNotFoundError)
                assert txn.state is TransactionState.COMMITTING
            broker.handlers[BaseCommand.END_TXN] = answered
            await txn.commit()
            assert txn.state is TransactionState.COMMITTED

    run(play)


def test_a_status_that_a_repeated_commit_has_met_may_be_its_own() -> None:
    """The first one was under way, so the second is refused; a third finds the transaction ended."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = losing_first(refusing(InvalidTxnStatusError("committing")))
        txn = await client.new_transaction()
        await txn.commit()
        assert txn.state is TransactionState.COMMITTED

    run(play)


@pytest.mark.parametrize("failure", [TransactionNotFoundError("gone"), InvalidTxnStatusError("aborted")])
def test_a_refused_commit_is_final(failure: ServerError) -> None:
    """Where it was asked for once: nothing of it is committed."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = refusing(failure)
        txn = await client.new_transaction()
        with pytest.raises(type(failure)):
            await txn.commit()
        assert txn.state is TransactionState.ERROR
        with pytest.raises(InvalidTxnStatusError, match="it is ERROR"):
            await txn.commit()

    run(play)


def test_a_commit_that_a_broker_cannot_do_now_may_be_repeated() -> None:
    """It is unknown until then: the decision may be written down."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = refusing(ServiceNotReadyError("recovering"))
        txn = await client.new_transaction()
        with pytest.raises(TransactionUnconfirmedError, match="recovering"):
            await txn.commit()
        await txn.commit()
        assert txn.state is TransactionState.COMMITTED
        assert len({each.endTxn.request_id for each in requests(broker, BaseCommand.END_TXN)}) == 1

    run(play)


def test_a_commit_without_an_answer_in_time_may_be_repeated() -> None:
    """Also one whose caller has given up."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = lambda peer, command: None
        txn = await client.new_transaction()
        with pytest.raises(TransactionUnconfirmedError, match="gave no answer"):
            await txn.commit()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await txn.commit()
        broker.handlers[BaseCommand.END_TXN] = answered
        await txn.commit()
        assert txn.state is TransactionState.COMMITTED

    run(play, operation_timeout_s=0.3)


def test_an_abort_whose_answer_was_lost_is_an_abort() -> None:
    """A coordinator that knows the transaction no more has aborted it, the first time or by its clock."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = losing_first(refusing(TransactionNotFoundError("gone")))
        txn = await client.new_transaction()
        await txn.abort()
        assert txn.state is TransactionState.ABORTED

    run(play)


def test_a_block_tells_that_it_could_not_abort() -> None:
    """In a note: the exception that ended the block is what the application has to know."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.END_TXN] = refusing(ServiceNotReadyError("recovering"))
        with pytest.raises(ZeroDivisionError) as caught:
            async with client.transaction() as txn:
                raise ZeroDivisionError
        assert "was not aborted, and ends when its time is over" in caught.value.__notes__[0]
        before = txn.state
        await txn.abort()
        assert (before, txn.state) == (TransactionState.ABORTING, TransactionState.ABORTED)

    run(play)


def test_an_acknowledgement_without_an_answer_fails_the_transaction() -> None:
    """It is not sent again, as the message may be given to another consumer meanwhile."""

    async def play(broker: ScriptedBroker, client: AsyncClient) -> None:
        coordinating(broker)
        broker.handlers[BaseCommand.ACK] = lambda peer, command: peer.transport.abort()
        consumer = await client.subscribe("t", "s", type="shared")
        await broker.until(lambda: broker.peers[0].count(BaseCommand.FLOW) > 0)
        broker.peers[0].deliver(0, plain_entry(b"x"))
        message = await consumer.receive(WAIT_S)
        txn = await client.new_transaction()
        await consumer.acknowledge(message, txn=txn)
        with pytest.raises(TransactionHasOperationFailedError):
            await txn.commit()
        assert txn.state is TransactionState.ABORTED
        assert len(requests(broker, BaseCommand.ACK)) == 1

    run(play)
