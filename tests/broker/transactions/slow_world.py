# SPDX-License-Identifier: Apache-2.0
"""A broker in which each step of a chore takes a whole turn of the loop, and an end of a transaction many steps."""

from __future__ import annotations

from functools import partial

import pytest

from broker_core.base.turns import Turns, Worker
from broker_core.broker.broker import Broker
from broker_core.broker.coordinator import coordinator
from broker_core.storage.store import Store
from tests.broker.world import World


class OneStepATurn(Turns):
    """Turns that are over after one step."""

    def came(self, worker: Worker) -> None:
        if worker.work(lambda: True):
            self._call_soon(partial(self.came, worker))


class SlowWorld(World):
    """A ``World`` with such turns."""

    def open(self) -> None:
        self.store = Store.open(self.disk, "/data", self.clock, self.settings)
        turns = OneStepATurn(partial(self.clock.call_later, 0), self.clock)
        self.broker = Broker(self.store, self.clock, self.clock, self.settings, turns=turns)

    @staticmethod
    def go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
        """Each participant of a transaction is a step."""
        monkeypatch.setattr(coordinator, "_AT_ONCE_MAX", 0)
        monkeypatch.setattr(coordinator, "_A_STEP", 1)
