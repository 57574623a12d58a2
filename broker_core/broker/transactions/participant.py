# SPDX-License-Identifier: Apache-2.0
"""``Participant``: a part of a loaded topic that transactions have touched, and the four steps in which one ends there.

A topic has a participant for the entries that were sent to it (``buffer``), and each subscription one for the
acknowledgements that are pending in it (``pending_acks``). The coordinator takes all participants of a transaction
through the same steps:

1. The transaction is not open any more: nothing is sent or acknowledged under it from now on.
2. ``prepare`` of each: what was done under it becomes durable.
3. The decision is one change of the catalogue, all of it or nothing after a crash. ``decide`` of each is called inside
   of it.
4. The decision is durable: ``commit`` or ``abort`` of each, all in the same turn of the loop.

A topic that is not loaded when a transaction ends has no participants then. So what is stored of a transaction must
tell by itself, when the topic is loaded, what became of it: ``OpenTransactions`` has the ones that are not decided
durably, whose work stays hidden. Of all others what is left to do has been decided:

- A pending acknowledgement that is stored and of no open transaction was committed: the decision to abort deletes
  those of its transaction, loaded or not. It is applied again, however often, until the cursor's change is durable;
  only a later change of the catalogue may delete it.
- An entry of no open transaction was committed unless it is noted as aborted.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker_core.storage.commit import OnDurable
from broker_core.wire.heads import TxnId


class ParticipantKey(NamedTuple):
    """The name of a participant: a topic of the catalogue, and a subscription of it; "" for the topic's entries."""

    topic_id: int
    subscription: str = ""


class Participant(Protocol):
    """A part of a loaded topic that transactions have touched. No step may fail, and each may find nothing to do."""

    def prepare(self, transaction: TxnId, on_durable: OnDurable) -> None:
        """Call ``on_durable`` when all that was done under the transaction is durable, at once if it is; with the error
        if it never will be."""

    def decide(self, transaction: TxnId, *, committed: bool) -> None:
        """Make the participant's own changes of the catalogue, as a part of the decision. What it shows stays as it is:
        the decision is not durable yet."""

    def commit(self, transaction: TxnId) -> None:
        """The transaction is committed: show what it wrote, apply what it acknowledged."""

    def abort(self, transaction: TxnId) -> None:
        """The transaction is aborted: what it wrote is dead, what it acknowledged may be delivered again."""
