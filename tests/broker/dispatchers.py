# SPDX-License-Identifier: Apache-2.0
"""The parts of a dispatcher of Shared or Key_Shared, for tests that look inside."""

from __future__ import annotations

from broker_core.broker.dispatch.dispatcher import Dispatcher
from broker_core.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from broker_core.broker.dispatch.many_consumers import ManyConsumersDispatcher
from broker_core.broker.dispatch.shared import SharedWaitingRoom


def many_consumers(dispatcher: Dispatcher) -> ManyConsumersDispatcher:
    """``dispatcher``, which is one of many consumers."""
    assert isinstance(dispatcher, ManyConsumersDispatcher)
    return dispatcher


def key_shared(dispatcher: Dispatcher) -> KeySharedDispatcher:
    """``dispatcher``, which is one of Key_Shared."""
    assert isinstance(dispatcher, KeySharedDispatcher)
    return dispatcher


def shared_room(dispatcher: Dispatcher) -> SharedWaitingRoom:
    """The waiting room of ``dispatcher``, which is one of Shared."""
    room = many_consumers(dispatcher).room
    assert isinstance(room, SharedWaitingRoom)
    return room
