# SPDX-License-Identifier: Apache-2.0
"""Random histories on a disk that is nearly full at times: producers wait, nobody else does (reliability row 11)."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from broker_core.base.errors import ProducerBlockedQuotaError
from broker_core.storage.disk import Space
from tests.broker.whole.entry import Entry
from tests.broker.whole.test_machine_policies import PoliciesMachine
from tests.broker.whole.topic_machine import NAMES, forget_what_is_gone

SIZE_BYTES = 1 << 40
ROOM, NEARLY_FULL = Space(SIZE_BYTES // 2, SIZE_BYTES), Space(0, SIZE_BYTES)
LOOK_MS, MAKE_ROOM_MS = 1000, 5000


class FullDiskMachine(PoliciesMachine):
    """``is_full``: what the disk says."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.world.disk.space_left = ROOM
        self.world.restart()

    @rule(is_full=st.booleans())
    def fill(self, is_full: bool) -> None:
        """Somebody else's files come or go."""
        self.settle()
        self.is_full = is_full
        self.world.disk.space_left = NEARLY_FULL if is_full else ROOM
        self.world.clock.advance(LOOK_MS)
        assert not (is_full and self.sender.is_connected), "producing goes on"
        self.settle()

    @rule(skipping=st.lists(st.sampled_from(NAMES), unique=True))
    def make_room(self, skipping: list[str]) -> None:
        """7.1: what everybody has acknowledged goes soon while the disk is full, and nothing else ever does."""
        self.settle()
        for name in skipping:
            self.skip_all(name)
        self.world.clock.advance(MAKE_ROOM_MS)
        self.settle()
        self.compare_with_the_log()
        is_done = not any(model.unacked() for model in self.models.values())
        if self.is_full and is_done and self.policies.retention_policies is None:
            assert not self.log, "what nobody needs fills the disk"

    @invariant()
    def what_made_room_is_known(self) -> None:
        """It goes at any moment while the disk is full, and a seek to it leads to what is left."""
        if self.world.broker.registry.loaded(self._watched.name):
            forget_what_is_gone(self.topic.log, self.log, self.models.values())

    def skip_all(self, name: str) -> None:
        last = next(reversed(self.log), None)
        if last is not None:
            if self.models[name].unacked():
                self.models[name].acked_through(last, 0)
            self.world.subscription(name).pass_over(last)
            self.settle()

    def send(self, entry: Entry) -> None:
        if self.is_full:
            with pytest.raises(ProducerBlockedQuotaError, match="not for messages"):
                self.sender.connect(self.topic)
        else:
            super().send(entry)


TestFullDisk = FullDiskMachine.TestCase
TestFullDisk.settings = settings(
    max_examples=35, stateful_step_count=80, deadline=None, derandomize=True, print_blob=True
)
