# SPDX-License-Identifier: Apache-2.0
"""Backpressure on publishing: who is paused when, and that everybody is resumed."""

from broker_core.server.budgets import PublishAccount, PublishBudget


class Client:
    """A connection with a number of unanswered bytes."""

    def __init__(self, budget: PublishBudget) -> None:
        self.budget = budget
        self.in_flight_bytes = 0
        self.paused = False
        self.account = PublishAccount(lambda: self.in_flight_bytes, self._pause, self._resume)

    def publish(self, count: int) -> None:
        self.in_flight_bytes += count
        self.budget.published(self.account)

    def reading(self) -> bool:
        return not self.paused

    def _pause(self) -> None:
        assert not self.paused
        self.paused = True

    def _resume(self) -> None:
        assert self.paused
        self.paused = False


def test_a_connection_is_paused_above_its_share_and_resumed_at_half_of_it() -> None:
    """A quarter of the budget each, so that one producer cannot stop the others."""
    budget = PublishBudget(4000)
    fast, calm = Client(budget), Client(budget)
    fast.publish(1000)
    assert fast.reading()
    fast.publish(1)
    assert not fast.reading()
    calm.publish(500)
    assert calm.reading()
    fast.in_flight_bytes = 501
    budget.committed()
    assert not fast.reading()
    fast.in_flight_bytes = 500
    budget.committed()
    assert fast.reading()


def test_an_exhausted_budget_pauses_whoever_publishes_next() -> None:
    """And all of them go on once half of it is free."""
    budget = PublishBudget(4000)
    clients = [Client(budget) for _ in range(6)]
    for client in clients:
        client.publish(900)
    assert [client.reading() for client in clients] == [True, True, True, True, False, False]
    assert budget.in_flight_bytes == 5400
    for client in clients[:3]:
        client.in_flight_bytes = 0
    budget.committed()
    assert not clients[5].reading()
    for client in clients:
        client.in_flight_bytes = min(client.in_flight_bytes, 400)
    budget.committed()
    assert all(client.reading() for client in clients)
    assert budget.in_flight_bytes == 1200


def test_what_a_lost_connection_had_in_flight_is_free_again() -> None:
    """Else the budget would shrink with every lost connection."""
    budget = PublishBudget(4000)
    lost, waiting = Client(budget), Client(budget)
    lost.publish(4000)
    waiting.publish(1)
    assert not waiting.reading()
    budget.forget(lost.account)
    assert waiting.reading()
    assert budget.in_flight_bytes == 1
