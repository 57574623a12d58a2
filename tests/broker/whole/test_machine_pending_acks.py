# SPDX-License-Identifier: Apache-2.0
"""Random histories with acknowledgements in transactions (T9, T10, T11, T14, T18) beside all of WholeBroker."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker_core.base.errors import NotAllowedError, PersistenceServerError, ServerError, TransactionConflictError
from broker_core.base.positions import Position
from broker_core.broker.requests import ANYBODY, AckId, AckKind
from broker_core.broker.transactions.message_set import WHOLE
from broker_core.broker.transactions.open_transactions import OpenTransactions
from broker_core.broker.transactions.participant import ParticipantKey
from broker_core.storage.commit import OnDurable
from broker_core.testing.sim_disk import POLICIES
from broker_core.wire.ack_sets import all_bits, words_of_bits
from broker_core.wire.heads import TxnId
from tests.broker.transactions.clients import begin
from tests.broker.whole.machine import WHICH, WholeBrokerMachine
from tests.broker.whole.model import SINGLE_ACTIVE
from tests.broker.whole.pending import Asked, PendingModel, Slot
from tests.broker.whole.topic_machine import NAMES, PICK, calm

OPEN_MAX = 4
DAY_MS = 86_400_000
BITS = st.none() | st.integers(1, 15)
Named = tuple[int, int | None]
"""An entry, and the messages of it; None: all of them."""

JUDGE = ParticipantKey(-1)
"""The name under which the machine takes part in each transaction, before everybody else."""


class PendingAcksMachine(WholeBrokerMachine):
    """Transactions that acknowledge on both subscriptions. ``open_ones``: each with the end that was asked for."""

    models: dict[str, PendingModel]  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.models = {
            name: PendingModel(name, self.log, self.world.clock, self.tuning, self.learn_new) for name in NAMES
        }
        self.open_ones: dict[TxnId, bool | None] = {}
        self.answered_ends: dict[TxnId, bool] = {}

    # -- a participant: it hears first

    def over(self, transaction: TxnId, *, committed: bool) -> None:
        asked = self.open_ones.pop(transaction)
        assert asked is None or asked is committed, "T1"
        for model in self.models.values():
            (model.committed if committed else model.aborted)(transaction)

    def attend(self) -> None:
        """Take part in all that are open."""
        transactions = self.transactions
        transactions.attach(JUDGE, _Judge(self))
        for name in self.open_ones:
            found = transactions.get(name)
            assert found is not None
            found.participants.add(JUDGE)

    @property
    def transactions(self) -> OpenTransactions:
        return self.topic.transactions

    # -- rules

    @rule()
    def begin_transaction(self) -> None:
        if len(self.open_ones) == OPEN_MAX:
            return
        name = begin(self.world, ttl_ms=DAY_MS)
        self.open_ones[name] = None
        for model in self.models.values():
            model.begun(name)
        self.attend()

    def pick_transaction(self, number: int) -> TxnId | None:
        """One that may be used; a new one if there are fewer than two."""
        if len(self.open_ones) < 2:
            self.begin_transaction()
        usable = [name for name, ending in self.open_ones.items() if ending is None]
        return usable[number % len(usable)] if usable else None

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, txn=PICK, which=st.lists(st.tuples(PICK, BITS), min_size=1, max_size=3))
    def ack_any_in_transaction(self, name: str, who: int, txn: int, which: list[Named]) -> None:
        """9.8.2: any messages of any entries."""
        self.ack_in(name, who, txn, [(self.pick_entry(number), bits) for number, bits in which])

    @rule(name=WHICH, who=PICK, txn=PICK, first=st.integers(0, 2), bits=st.lists(BITS, min_size=1, max_size=4))
    def work_in_transaction(self, name: str, who: int, txn: int, first: int, bits: list[int | None]) -> None:
        """9.8.1, 9.8.2: some of what came, and more is wanted."""
        _, client = self.client(name, who)
        if client is not None:
            seen = client.seen[first : first + len(bits)]
            self.ack_in(name, who, txn, list(zip(seen, bits, strict=False)))
            self.flow(name, who, 5)
            self.settle_down()

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, txn=PICK, which=PICK, off=st.integers(-1, 1), bits=BITS)
    def ack_near_what_is_pending(self, name: str, who: int, txn: int, which: int, off: int, bits: int | None) -> None:
        """9.8.2: of the same batch as another transaction, or of one beside it."""
        model, places = self.models[name], list(self.log)
        near = [position for messages in model.pending.values() for position in messages]
        if model.slot is not None:
            near.append(model.slot.position)
        near = [position for position in near if position in self.log]
        if near:
            place = places.index(near[which % len(near)]) + off
            self.ack_in(name, who, txn, [(places[place % len(places)], bits)])

    @rule(name=WHICH, who=PICK, bits=st.integers(1, 15), commits=st.lists(st.booleans(), min_size=2, max_size=2))
    def share_a_batch(self, name: str, who: int, bits: int, commits: list[bool]) -> None:
        """9.8.2, 9.8.7: two transactions acknowledge parts of one entry, and end one after the other."""
        _, client = self.client(name, who)
        if client is None or not client.seen:
            return
        for txn, theirs in enumerate((bits, ~bits & 15)):
            self.ack_in(name, who, txn, [(client.seen[-1], theirs)])
        for txn, commit in enumerate(commits):
            self.end_transaction(txn, commit, wait=bool(bits & 1))

    def ack_in(self, name: str, who: int, txn: int, wanted: list[tuple[Position, int | None]]) -> None:
        model, client = self.client(name, who)
        assert isinstance(model, PendingModel)
        transaction = self.pick_transaction(txn)
        acks = [(position, self.limited(position, bits)) for position, bits in wanted if bits != 0]
        acks = [(position, bits) for position, bits in acks if bits != 0]
        if client is None or transaction is None or not acks:
            return
        must_conflict = model.conflicts(transaction, acks)
        asked = None if must_conflict else model.pend(transaction, acks)
        answer = self.ask(client.consumer.ack_in, transaction, AckKind.INDIVIDUAL, self.ids(acks), asked)
        assert (answer is not None) == must_conflict, "T18"

    def limited(self, position: Position, bits: int | None) -> int | None:
        """Bits of messages that exist; a single message is a whole entry."""
        everything = all_bits(self.log[position].messages)
        return None if bits is None or everything == 1 else bits & everything

    def ids(self, acks: list[tuple[Position, int | None]]) -> list[AckId]:
        return [
            AckId(
                position, None if bits is None else words_of_bits(~bits & all_bits(self.log[position].messages)) or (0,)
            )
            for position, bits in acks
        ]

    def ask(
        self, ack: Any, transaction: TxnId, kind: AckKind, ids: list[AckId], asked: Asked | None
    ) -> ServerError | None:
        """Acknowledge; the refusal."""
        refusals: list[ServerError] = []

        def answer(error: ServerError | None) -> None:
            if error is not None:
                refusals.append(error)
            elif asked is not None:
                asked.answered = True

        ack(transaction, kind, ids, answer)
        assert all(isinstance(each, TransactionConflictError) for each in refusals)
        return refusals[0] if refusals else None

    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, txn=PICK, which=PICK, index=st.integers(-1, 3))
    def ack_through_in_transaction(self, name: str, who: int, txn: int, which: int, index: int) -> None:
        """9.8.3: whole entries and into batches, where one consumer is served at a time."""
        model, client = self.client(name, who)
        assert isinstance(model, PendingModel)
        transaction, position = self.pick_transaction(txn), self.pick_entry(which)
        if client is None or transaction is None:
            return
        everything = all_bits(self.log[position].messages)
        left = everything & ~all_bits(index + 1) if index >= 0 else 0
        ids = [AckId(position, words_of_bits(left) if left else None)]
        if model.kind not in SINGLE_ACTIVE:
            refused = client.consumer.ack_in_problem(transaction, AckKind.CUMULATIVE, ids)
            assert isinstance(refused, NotAllowedError)
            return
        slot = Slot(transaction, position, left)
        must_conflict = model.conflicts_through(slot, self.world.subscription(name).cursor.mark_delete)
        asked = None if must_conflict else model.pend_through(slot)
        answer = self.ask(client.consumer.ack_in, transaction, AckKind.CUMULATIVE, ids, asked)
        assert (answer is not None) == must_conflict, "T18"

    @calm
    @precondition(lambda self: self.log)
    @rule(
        name=WHICH, who=PICK, which=st.lists(st.tuples(PICK, BITS), min_size=1, max_size=3),
        commit=st.booleans(), change=st.integers(1, 12), seed=PICK, policy=st.sampled_from(POLICIES),
    )  # fmt: skip
    def lose_power_at_the_end(
        self,
        name: str,
        who: int,
        which: list[Named],
        commit: bool,
        change: int,
        seed: int,
        policy: Any,
    ) -> None:
        """9.8.6, 9.5.1: at any change of the disk between the request and the last thing that follows from it."""
        self.ack_any_in_transaction(name, who, 0, which)
        self.end_transaction(0, commit, wait=False)
        self.lose_power_in(self.settle, change, seed, policy)

    @precondition(lambda self: self.open_ones)
    @rule(txn=PICK, commit=st.booleans(), wait=st.booleans())
    def end_transaction(self, txn: int, commit: bool, wait: bool) -> None:
        """9.8.6, 9.8.7: both ends, followed by whatever comes."""
        name = self.pick_transaction(txn)
        if name is None:
            return
        self.open_ones[name] = commit

        def answer(error: ServerError | None) -> None:
            if error is not None:
                assert isinstance(error, PersistenceServerError), "else the power was not lost"
                return
            self.answered_ends[name] = commit
            assert name not in self.open_ones

        self.world.broker.transactions.end(name, ANYBODY, answer, commit=commit)
        if wait:
            self.settle_down()

    @calm
    @precondition(lambda self: self.log)
    @rule(name=WHICH, who=PICK, which=PICK, bits=st.integers(0, 15), acks=st.lists(PICK, max_size=2))
    def seek(self, name: str, who: int, which: int, bits: int, acks: list[int]) -> None:
        """9.8.9: what is pending stays so. A commit that is not durable yet is waited for."""
        self.settle()
        super().seek(name, who, which, bits, acks)

    # -- starts

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.attend()

    def known(self) -> Any:
        of_pending = {name: deepcopy((each.pending, each.acks, each.slot)) for name, each in self.models.items()}
        return super().known(), of_pending, dict(self.open_ones), dict(self.answered_ends)

    def restore(self, known: Any) -> None:
        whole, of_pending, self.open_ones, self.answered_ends = known
        super().restore(whole)
        for name, model in self.models.items():
            model.pending, model.acks, model.slot = of_pending[name]

    def after_start(self) -> None:
        """T1, T10: each transaction is open, or over as it was asked to be; of open ones all that was answered is
        pending."""
        outcome = self.world.store.catalogue.transactions.outcome
        for transaction, committed in self.answered_ends.items():
            assert outcome(transaction) is committed, "T1"
        for transaction, ending in list(self.open_ones.items()):
            ended = outcome(transaction)
            if ended is not None:
                assert ending is ended, "T1"
                self.over(transaction, committed=ended)
        self.open_ones = dict.fromkeys(self.open_ones)  # who asked for an end is gone
        super().after_start()
        self.attend()
        for name, model in self.models.items():
            slot = self.slot_of(name)
            if model.slot is not None:
                model.slot = None
            for transaction in self.open_ones:
                theirs = slot if slot is not None and slot.transaction == transaction else None
                model.recovered(transaction, self.pending_of(name, transaction), theirs)

    def slot_of(self, name: str) -> Slot | None:
        ack = self.world.subscription(name).transactional_acks.pending.cumulative
        return None if ack is None else Slot(ack.transaction, ack.position, ack.left)

    def pending_of(self, name: str, transaction: TxnId) -> dict[Position, int]:
        """What the broker has of messages that are not acknowledged."""
        model = self.models[name]
        found = {
            each.position: (all_bits(self.log[each.position].messages) if each.bits == WHOLE else each.bits)
            & model.open[each.position]
            for each in self.world.subscription(name).transactional_acks.pending.listed(transaction)
            if each.position in self.log
        }
        return {position: bits for position, bits in found.items() if bits}

    # -- the end

    def finish(self) -> None:
        """T5, T14: with all transactions over whoever is there gets the rest, and nothing is left of them."""
        for number, transaction in enumerate(list(self.open_ones)):
            if self.open_ones[transaction] is None:
                self.open_ones[transaction] = commit = bool(number % 2)
                self.world.broker.transactions.end(transaction, ANYBODY, lambda _error: None, commit=commit)
        self.settle()
        assert not self.open_ones
        super().finish()
        for name in NAMES:
            pending = self.world.subscription(name).transactional_acks.pending
            assert (pending.any, pending.transactions, len(pending.union), pending.sizes) == (False, [], 0, {})
        self.settle()
        assert self.world.store.catalogue.rows("SELECT * FROM pending_acks") == []
        assert self.world.store.catalogue.contradictions() == []

    # -- after every step

    @invariant()
    def what_is_pending_is_what_was_asked_for(self) -> None:
        """T9, T11: each bit is pending where it was acknowledged, and in one transaction."""
        if not self.world.broker.registry.loaded(self._watched.name):
            return
        for name, model in self.models.items():
            assert self.slot_of(name) == model.slot
            taken: dict[Position, int] = {}
            for transaction in self.open_ones:
                found = self.pending_of(name, transaction)
                assert found == {
                    p: bits & model.open[p] for p, bits in model.pending[transaction].items() if bits & model.open[p]
                }
                for position, bits in found.items():
                    assert not taken.get(position, 0) & bits, "T11"
                    taken[position] = taken.get(position, 0) | bits


class _Judge:
    """The machine as a participant."""

    def __init__(self, machine: PendingAcksMachine) -> None:
        self._machine = machine

    def prepare(self, transaction: TxnId, on_durable: OnDurable) -> None:
        on_durable(None)

    def decide(self, transaction: TxnId, *, committed: bool) -> None:
        """It stores nothing."""

    def commit(self, transaction: TxnId) -> None:
        self._machine.over(transaction, committed=True)

    def abort(self, transaction: TxnId) -> None:
        self._machine.over(transaction, committed=False)


TestPendingAcks = PendingAcksMachine.TestCase
TestPendingAcks.settings = settings(
    max_examples=60, stateful_step_count=100, deadline=None, derandomize=True, print_blob=True
)
