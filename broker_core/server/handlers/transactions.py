# SPDX-License-Identifier: Apache-2.0
"""Commands to the coordinators of transactions: connect to one, begin, add topics and subscriptions, end.

Every answer is of the kind that belongs to the request, errors too, and names the coordinator: the Java client looks
for its request by both, loses a plain ERROR, and hangs up on an answer of a coordinator that it does not know. A client
that has lost its connection sends its requests again; each may come twice. Source: Pulsar docs, "Binary protocol -
Transactions"; PIP-31.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.base.errors import NotAllowedError, ServerError, TransactionNotFoundError
from broker_core.base.positions import to_signed64
from broker_core.broker.requests import Requester
from broker_core.server.security.rights import CLUSTER, Right
from broker_core.server.session import Session
from broker_core.wire import commands
from broker_core.wire.heads import TxnId
from broker_core.wire.proto.pulsar_api_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandEndTxnOnPartition,
    CommandEndTxnOnSubscription,
    TxnAction,
)
from broker_core.wire.transactions import shown

_COMMIT: Final = TxnAction.COMMIT

_AboutOne = (
    CommandAddPartitionToTxn
    | CommandAddSubscriptionToTxn
    | CommandEndTxn
    | CommandEndTxnOnPartition
    | CommandEndTxnOnSubscription
)


def requester_of(session: Session) -> Requester:
    """The client of ``session``, as the owner of transactions."""
    gate, caller, identity = session.node.gate, session.caller, session.identity
    if gate is not None and caller is not None:
        is_superuser = gate.authorization.allows(caller, Right.SUPERUSER, CLUSTER)
        return Requester(caller.original or caller.role, is_superuser)
    return Requester() if identity is None else Requester(identity.role, identity.is_owner)


def handle_connect(session: Session, command: BaseCommand) -> None:
    """A client is about to use a coordinator: all of them are here. That transactions are off is told by a plain ERROR,
    as Pulsar does."""
    asked = command.tcClientConnectRequest
    answer = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_RESPONSE)
    answer.tcClientConnectResponse.request_id = asked.request_id
    try:
        session.node.broker.transactions.require(asked.tc_id)
    except NotAllowedError:
        raise
    except ServerError as error:
        answer.tcClientConnectResponse.error = commands.error_code(error)
        answer.tcClientConnectResponse.message = str(error)
    session.send(answer)


def handle_new(session: Session, command: BaseCommand) -> None:
    """Begin a transaction. Its time to live comes in milliseconds, whatever the field is called."""
    asked = command.newTxn

    def begun(outcome: TxnId | ServerError) -> None:
        answer = BaseCommand(type=BaseCommand.NEW_TXN_RESPONSE)
        response = answer.newTxnResponse
        response.request_id, response.txnid_most_bits = asked.request_id, asked.tc_id
        if isinstance(outcome, TxnId):
            response.txnid_least_bits = outcome.least_bits
        else:
            response.error, response.message = commands.error_code(outcome), str(outcome)
        session.send(answer)

    session.node.broker.transactions.begin(asked.tc_id, asked.txn_ttl_seconds, requester_of(session), begun)


def handle_add_partitions(session: Session, command: BaseCommand) -> None:
    """Say whether something may be sent under the transaction. Topics join when they are sent to: until then there is
    nothing to remember."""
    _require_open(session, command.addPartitionToTxn, BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE)


def handle_add_subscriptions(session: Session, command: BaseCommand) -> None:
    """As ``handle_add_partitions``, for acknowledgements."""
    _require_open(session, command.addSubscriptionToTxn, BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)


def _require_open(session: Session, asked: _AboutOne, kind: BaseCommand.Type) -> None:
    answer = _answer_of(session, asked, kind)
    try:
        session.node.broker.transactions.require_open(_name(asked), requester_of(session))
    except ServerError as error:
        answer(error)
    else:
        answer(None)


def handle_end(session: Session, command: BaseCommand) -> None:
    """Commit or abort a transaction."""
    asked = command.endTxn
    answer = _answer_of(session, asked, BaseCommand.END_TXN_RESPONSE)
    if not asked.HasField("txn_action"):
        answer(NotAllowedError("END_TXN says neither commit nor abort"))
        return
    commit = asked.txn_action == _COMMIT
    session.node.broker.transactions.end(_name(asked), requester_of(session), answer, commit=commit)


def handle_end_on_partition(session: Session, command: BaseCommand) -> None:
    """Brokers of a cluster tell each other so; here a transaction ends on all that it has touched at once."""
    asked = command.endTxnOnPartition
    _refuse_part(session, asked, BaseCommand.END_TXN_ON_PARTITION_RESPONSE)


def handle_end_on_subscription(session: Session, command: BaseCommand) -> None:
    """As ``handle_end_on_partition``."""
    asked = command.endTxnOnSubscription
    _refuse_part(session, asked, BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE)


def _refuse_part(session: Session, asked: _AboutOne, kind: BaseCommand.Type) -> None:
    requester, name = requester_of(session), shown(_name(asked))
    refusal: ServerError
    if session.node.gate is not None and not requester.is_superuser:
        refusal = TransactionNotFoundError(
            f"TC client ({requester.role}) is not a super user, and is not allowed to operate on transaction {name}"
        )
    else:
        refusal = NotAllowedError(
            f"transaction {name} cannot end on a part of what it has touched", hint="end it as a whole, by END_TXN"
        )
    _answer_of(session, asked, kind)(refusal)


def _name(asked: _AboutOne) -> TxnId:
    return TxnId(to_signed64(asked.txnid_most_bits), to_signed64(asked.txnid_least_bits))


def _answer_of(session: Session, asked: _AboutOne, kind: BaseCommand.Type) -> Callable[[ServerError | None], None]:
    """Answers a request about one transaction, whatever comes of it, with both halves of its id."""

    def answer(error: ServerError | None) -> None:
        command = BaseCommand(type=kind)
        response = getattr(command, commands.field_of(kind))
        response.request_id = asked.request_id
        response.txnid_most_bits, response.txnid_least_bits = asked.txnid_most_bits, asked.txnid_least_bits
        if error is not None:
            response.error, response.message = commands.error_code(error), str(error)
        session.send(command)

    return answer
