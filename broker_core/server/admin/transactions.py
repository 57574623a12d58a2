# SPDX-License-Identifier: Apache-2.0
"""Transactions: those that are open, what they hold in topics and subscriptions, and their end by an administrator.

The JSON has Pulsar's names, and as there nothing that is null. Fields of ours are two in ``producedPartitions``,
whether the transaction holds readers of that topic back and how many stored messages wait, and the ``holder`` of a
topic. Transactions have no logs of their own here, so there are no internal stats of them. Source: Pulsar docs,
"Admin API - transactions"; PIP-89.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

from broker_core.base.errors import InvalidTxnStatusError, PulsarishError, TransactionNotFoundError
from broker_core.base.names import TopicName
from broker_core.base.positions import Position
from broker_core.broker.requests import Requester
from broker_core.broker.subscription import Subscription
from broker_core.broker.topic import Topic
from broker_core.broker.transactions.open_transactions import not_found
from broker_core.broker.transactions.pending_acks import CumulativeAck
from broker_core.broker.transactions.transaction import Transaction, TransactionStatus
from broker_core.server.admin.answers import MissingError, RefusedError, begun
from broker_core.server.admin.requests import AdminRequest, Route
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Right
from broker_core.storage.ledger import UnreadableEntryError
from broker_core.wire.heads import TxnId
from broker_core.wire.transactions import shown

Json = dict[str, Any]

_EVERY: Final = -1
_NO_TIMES: Final = {"recoverStartTime": 0, "recoverEndTime": 0}
"""Transactions are recovered with all other data, before the broker answers."""

_ADMINISTRATOR: Final = Requester(is_superuser=True)


def _require_enabled(request: AdminRequest) -> None:
    if not request.broker.transactions.enabled:
        raise RefusedError(503, "this broker has no transactions: it runs with transactionCoordinatorEnabled = false")


# -- coordinators


async def get_coordinators(request: AdminRequest) -> object:
    """All coordinators: ids, and the broker, which is the same for each."""
    _require_enabled(request)
    url = request.node.service_url or request.node.service_url_tls
    return [{"id": each, "brokerServiceUrl": url} for each in range(request.broker.transactions.count)]


async def get_coordinator_stats(request: AdminRequest) -> object:
    """Highest id that was given, and number of open transactions: of all coordinators by their ids, or of
    `?coordinatorId=`."""
    _require_enabled(request)
    chosen = _chosen_coordinator(request)
    marks = await request.in_turns(_low_water_marks(request.broker.open_transactions))
    if chosen != _EVERY:
        return _coordinator(request, chosen, marks)
    return {str(each): _coordinator(request, each, marks) for each in range(request.broker.transactions.count)}


def _chosen_coordinator(request: AdminRequest) -> int:
    chosen = request.query_number("coordinatorId", _EVERY)
    count = request.broker.transactions.count
    if "coordinatorId" in request.query_params and not 0 <= chosen < count:
        raise MissingError(f"there is no transaction coordinator {chosen}; use 0 to {count - 1}")
    return chosen


def _coordinator(request: AdminRequest, coordinator: int, marks: dict[int, int]) -> Json:
    transactions = request.broker.transactions
    return {
        "state": "Ready",
        "leastSigBits": transactions.newest_id(coordinator),
        "lowWaterMark": marks.get(coordinator, 0),
        "ongoingTxnSize": transactions.active(coordinator),
        **_NO_TIMES,
    }


def _low_water_marks(transactions: Iterable[Transaction]) -> Generator[None, None, dict[int, int]]:
    """Of each coordinator with open transactions the highest number below which there is none."""
    marks: dict[int, int] = {}
    for each in list(transactions):
        most, least = each.id
        marks[most] = min(marks.get(most, least - 1), least - 1)
        yield
    return marks


# -- one transaction


async def get_metadata(request: AdminRequest) -> object:
    """One open transaction: its owner, its begin, its timeout, and its topics and subscriptions."""
    _require_enabled(request)
    return await _metadata(request, _open_transaction(request))


async def get_slow_transactions(request: AdminRequest) -> object:
    """The open transactions whose timeout is longer than the milliseconds in the path, by id; of all coordinators, or
    of `?coordinatorId=`."""
    _require_enabled(request)
    chosen, millis = _chosen_coordinator(request), request.number("millis")

    def slow() -> Generator[None, None, list[Transaction]]:
        found = []
        for each in list(request.broker.open_transactions):
            if each.ttl_ms > millis and chosen in (_EVERY, each.id.most_bits):
                found.append(each)
            yield
        return found

    return {shown(each.id): await _metadata(request, each) for each in await request.in_turns(slow())}


async def abort(request: AdminRequest) -> None:
    """Abort an open transaction, whose owner is told at its next request. One that was aborted stays so."""
    _require_enabled(request)
    await begun(
        lambda on_done: request.broker.transactions.end(request.transaction_id, _ADMINISTRATOR, on_done, commit=False)
    )


def _open_transaction(request: AdminRequest) -> Transaction:
    found = request.broker.open_transactions.get(request.transaction_id)
    if found is None:
        raise not_found(request.transaction_id)
    return found


async def _metadata(request: AdminRequest, transaction: Transaction) -> Json:
    produced: dict[str, Json] = {}
    acked: dict[str, Json] = {}
    names = request.broker.open_transactions.names_touched_by(transaction)
    async for topic in request.used_in_turns(map(TopicName.parse, names)):
        name = str(topic.name)
        if (first := topic.buffer.first_of(transaction.id)) is not None:
            holds = topic.buffer.holder == transaction.id
            waiting = _count_held(topic) if holds else 0
            produced[name] = {**_in_buffer(first, aborted=False), "holdsBack": holds, "messagesHeldBack": waiting}
        if subscriptions := _acked_subscriptions(topic, transaction.id):
            acked[name] = subscriptions
    owner = {} if transaction.owner is None else {"owner": transaction.owner}
    return {
        **_begun(transaction),
        "status": transaction.status.name,
        "timeoutAt": transaction.ttl_ms,
        **owner,
        "producedPartitions": produced,
        "ackedPartitions": acked,
    }


def _count_held(topic: Topic) -> int | None:
    """None: the disk refuses to read how many there are."""
    try:
        return topic.buffer.count_held()
    except UnreadableEntryError:
        return None


def _acked_subscriptions(topic: Topic, transaction: TxnId) -> Json:
    return {
        name: _in_pending_acks(pending.cumulative_of(transaction))
        for name, subscription in topic.subscriptions.items()
        if transaction in (pending := subscription.transactional_acks.pending).transactions
    }


# -- topics


async def get_buffer_stats(request: AdminRequest) -> object:
    """The transactions of one topic: how many are open, how many were aborted since it was loaded, how far readers may
    read, and the transaction that holds them back. `?lowWaterMarks=true` adds those of the coordinators."""
    _require_enabled(request)
    buffer = request.single_topic().buffer
    holder = None if buffer.holder is None else request.broker.open_transactions.get(buffer.holder)
    return {
        "state": "Ready",
        "maxReadPosition": str(buffer.readable_end),
        "lastSnapshotTimestamps": 0,
        **await _marks_if_asked(request),
        "ongoingTxnSize": buffer.open_count,
        "totalAbortedTransactions": buffer.aborted_count,
        "snapshotType": "Single",
        **({} if holder is None else {"holder": _begun(holder)}),
        **_NO_TIMES,
    }


def _begun(transaction: Transaction) -> Json:
    return {"txnId": shown(transaction.id), "openTimestamp": transaction.started_ms}


async def _marks_if_asked(request: AdminRequest) -> Json:
    if not request.flag("lowWaterMarks"):
        return {}
    return {"lowWaterMarks": await request.in_turns(_low_water_marks(request.broker.open_transactions))}


async def get_in_buffer_stats(request: AdminRequest) -> object:
    """The part of one transaction in one topic: its first entry, or that it was aborted."""
    _require_enabled(request)
    transaction = request.transaction_id
    first = request.single_topic().buffer.first_of(transaction)
    ended = request.broker.open_transactions.ended_as(transaction)
    return _in_buffer(first, aborted=ended is TransactionStatus.ABORTED)


def _in_buffer(first: Position | None, *, aborted: bool) -> Json:
    return {"aborted": aborted} if first is None else {"startPosition": str(first), "aborted": aborted}


# -- subscriptions


async def get_pending_ack_stats(request: AdminRequest) -> object:
    """The acknowledgements of one subscription in open transactions: the number of these. `?lowWaterMarks=true` adds
    those of the coordinators."""
    _require_enabled(request)
    pending = _subscription(request).transactional_acks.pending
    return {
        "state": "Ready" if pending.any else "None",
        **await _marks_if_asked(request),
        "ongoingTxnSize": len(pending.transactions),
        **_NO_TIMES,
    }


async def get_in_pending_ack_stats(request: AdminRequest) -> object:
    """The cumulative acknowledgement of one transaction on one subscription."""
    _require_enabled(request)
    return _in_pending_acks(_subscription(request).transactional_acks.pending.cumulative_of(request.transaction_id))


async def get_position_stats(request: AdminRequest) -> object:
    """Whether one entry, or the message `?batchIndex=` of a batch, is acknowledged in an open transaction."""
    _require_enabled(request)
    index = request.query_number("batchIndex", -1)
    return {"state": _subscription(request).transactional_acks.state_of(request.position, index)}


def _subscription(request: AdminRequest) -> Subscription:
    found = request.single_topic().subscriptions.get(request.subscription_name)
    if found is None:
        raise request.missing_subscription()
    return found


def _in_pending_acks(ack: CumulativeAck | None) -> Json:
    """The place of the last message that is acknowledged: of a batch that is in part, with its index."""
    if ack is None:
        return {}
    first_left = (ack.left & -ack.left).bit_length() - 1
    return {"cumulativeAckPosition": f"{ack.position}:{first_left - 1}" if ack.left else str(ack.position)}


# -- parts that this broker does not have


async def refuse_internal_stats(request: AdminRequest) -> None:
    """Refused (405): transactions have no logs of their own here, which internal stats would be about."""
    raise RefusedError(405, _NO_LOGS)


_NO_LOGS: Final = (
    "there are no internal stats of transactions: they have no logs of their own here; ask for coordinatorStats,"
    " transactionBufferStats or pendingAckStats"
)


async def set_coordinators(request: AdminRequest) -> None:
    """Refused: the number of coordinators is a setting (405), and never less than it was (406)."""
    _require_enabled(request)
    wanted, count = await request.body_as(int, 0), request.broker.transactions.count
    if wanted <= count:
        raise RefusedError(406, f"{wanted} transaction coordinators are not more than the {count} that there are")
    raise RefusedError(
        405, "the number of coordinators cannot change while the broker runs; set transactionCoordinators"
    )


_B: Final = "/admin/v3/transactions"
_OF_TOPIC: Final = "{tenant}/{namespace}/{topic}"
_OF_SUBSCRIPTION: Final = f"{_OF_TOPIC}/{{subscription}}"
_ID: Final = "{most}/{least}"

_TOPIC: Final = needs.of_topic("GET_STATS", Right.LOOKUP)
_SUBSCRIPTION: Final = needs.of_topic("CONSUME", Right.CONSUME, About.SUBSCRIPTION)
_GONE: Final[Mapping[type[PulsarishError], int]] = {TransactionNotFoundError: 404, InvalidTxnStatusError: 409}

ROUTES: Final = [
    Route(f"{_B}/coordinators", get_coordinators, needs.SUPERUSER),
    Route(f"{_B}/coordinatorStats", get_coordinator_stats, needs.SUPERUSER),
    Route(f"{_B}/transactionMetadata/{_ID}", get_metadata, needs.TRANSACTION_OWNER, statuses=_GONE),
    Route(f"{_B}/slowTransactions/{{millis}}", get_slow_transactions, needs.SUPERUSER),
    Route(f"{_B}/abortTransaction/{_ID}", abort, needs.SUPERUSER, methods=["POST"], statuses=_GONE),
    Route(f"{_B}/transactionBufferStats/{_OF_TOPIC}", get_buffer_stats, _TOPIC),
    Route(f"{_B}/transactionInBufferStats/{_OF_TOPIC}/{_ID}", get_in_buffer_stats, _TOPIC),
    Route(f"{_B}/pendingAckStats/{_OF_SUBSCRIPTION}", get_pending_ack_stats, _SUBSCRIPTION),
    Route(f"{_B}/transactionInPendingAckStats/{_OF_SUBSCRIPTION}/{_ID}", get_in_pending_ack_stats, _SUBSCRIPTION),
    Route(f"{_B}/positionStatsInPendingAck/{_OF_SUBSCRIPTION}/{{ledger}}/{{entry}}", get_position_stats, _SUBSCRIPTION),
    Route(f"{_B}/coordinatorInternalStats/{{coordinator}}", refuse_internal_stats, needs.SUPERUSER),
    Route(f"{_B}/transactionBufferInternalStats/{_OF_TOPIC}", refuse_internal_stats, _TOPIC, loads=False),
    Route(f"{_B}/pendingAckInternalStats/{_OF_SUBSCRIPTION}", refuse_internal_stats, _SUBSCRIPTION, loads=False),
    Route(f"{_B}/transactionCoordinator/replicas", set_coordinators, needs.SUPERUSER, methods=["POST"]),
]
