# SPDX-License-Identifier: Apache-2.0
"""The memory that unfinished input takes: bounded, given back, and never a reason to wait for ever."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from broker_core.base.limits import (
    CONSUMER_NAME_BYTES_MAX,
    PRODUCER_METADATA_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
)
from broker_core.server.budgets import InputAccount, InputBudget, allocate
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import BUFFER_BYTES_FIRST, FrameReader
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata, ServerError

MIB = 1024 * 1024
FRAME_BYTES = 50_000
LARGEST = 256 * 1024
MESSAGE_BYTES = 5 * MIB


class Peer:
    """A connection that is read when it may be: what its client has sent and is not read yet is ``unread``."""

    def __init__(self, budget: InputBudget) -> None:
        self.budget = budget
        self.reader = FrameReader(LARGEST, allowed_bytes=BUFFER_BYTES_FIRST, allocate=allocate)
        self.account = InputAccount(self)
        self.unread = b""
        self.pauses = 0
        self.frames = 0
        self.reason = ""
        self.is_waiting_for_us = False

    def sends(self, content: bytes) -> None:
        self.unread += content
        while self.unread and not self.pauses and not self.reason:
            room = self.reader.get_buffer()
            piece, self.unread = self.unread[: len(room)], self.unread[len(room) :]
            room[: len(piece)] = piece
            self.reader.filled(len(piece))
            taken = len(self.reader.take())
            if taken:
                self.frames += taken
                self.budget.frames_taken(self.account)
            self.budget.settle(self.account)

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None:
        self.pauses -= 1

    def hang_up(self, reason: str) -> None:
        self.reason = reason
        self.budget.forget(self.account)


def frame(size_bytes: int = FRAME_BYTES) -> bytes:
    """One that is as large as that."""
    return struct.pack(">II", size_bytes - 4, 1) + bytes(size_bytes - 8)


def world(bytes_max: int) -> tuple[InputBudget, VirtualTimers]:
    timers = VirtualTimers()
    return InputBudget(bytes_max, LARGEST, timers, timers), timers


def test_what_is_held_stays_within_the_budget_and_all_frames_come() -> None:
    """Two hundred producers send slowly, a piece each in turn: each frame has all of its memory or none of it."""
    budget, _timers = world(8 * LARGEST)
    peers = [Peer(budget) for _ in range(200)]
    for begin in range(0, FRAME_BYTES, 10_000):
        for peer in peers:
            peer.sends(frame()[begin : begin + 10_000])
            assert budget.held_bytes <= budget.bytes_max
            assert sum(each.reader.capacity_bytes - BUFFER_BYTES_FIRST for each in peers) <= budget.bytes_max
    for _ in range(200):
        for peer in peers:
            peer.sends(b"")
    assert [peer.frames for peer in peers] == [1] * 200
    for peer in peers:
        budget.release(peer.account)
    assert (budget.held_bytes, budget.waiting) == (0, 0)
    assert {peer.reader.capacity_bytes for peer in peers} == {BUFFER_BYTES_FIRST}


def test_small_frames_need_no_memory_of_others() -> None:
    """A client that asks small things is served while all of the memory is lent."""
    budget, _timers = world(2 * LARGEST)
    gluttons, waiting, modest = [Peer(budget), Peer(budget)], Peer(budget), Peer(budget)
    for glutton in gluttons:
        glutton.sends(frame(LARGEST)[:-10])
    waiting.sends(frame())
    assert (waiting.pauses, waiting.frames) == (1, 0)
    modest.sends(frame(1000) * 50)
    assert modest.frames == 50


def test_who_keeps_others_waiting_is_hung_up_and_they_go_on() -> None:
    """A client that keeps back the end of its frame is told why and disconnected; no more clients than need be."""
    budget, timers = world(2 * LARGEST)
    holders = [Peer(budget) for _ in range(10)]
    for holder in holders:
        holder.sends(frame()[:-10])
        timers.advance(1000)
    waiting = Peer(budget)
    waiting.sends(frame(LARGEST // 2))
    assert waiting.pauses == 1
    timers.advance(60_000)
    waiting.sends(b"")
    assert waiting.frames == 1
    assert "maxUnfinishedInputSizeInMB" in holders[0].reason
    assert not holders[-1].reason


def test_few_are_hung_up_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each of them a large buffer goes back to the system: all at once would be a long turn."""
    budget, timers = world(2 * LARGEST)
    holders = [Peer(budget) for _ in range(10)]
    hung_up_in_turns = []
    arm = timers.call_later

    def counting(delay_s: float, callback: Callable[[], None]) -> object:
        def turn() -> None:
            before = sum(bool(holder.reason) for holder in holders)
            callback()
            hung_up_in_turns.append(sum(bool(holder.reason) for holder in holders) - before)

        return arm(delay_s, turn)

    monkeypatch.setattr(timers, "call_later", counting)
    for peer in [*holders, *(Peer(budget) for _ in range(12))]:
        peer.sends(frame()[:-10])
    timers.advance(60_000)
    assert sum(hung_up_in_turns) > 4
    assert max(hung_up_in_turns) == 2


def test_nobody_is_hung_up_while_there_is_room() -> None:
    """However slow: an hour for a frame is allowed."""
    budget, timers = world(2 * LARGEST)
    slow = Peer(budget)
    slow.sends(frame()[:-1])
    timers.advance(3_600_000)
    slow.sends(frame()[-1:])
    assert (slow.frames, slow.reason) == (1, "")


def test_memory_is_lent_for_a_frame_at_a_time_while_others_wait() -> None:
    """Quick producers, who never have an empty buffer, take turns with those who wait; nobody is hung up for it."""
    budget, timers = world(2 * LARGEST)
    size = LARGEST - 1
    peers = [Peer(budget) for _ in range(5)]
    for peer in peers:
        peer.sends(frame(size)[:-10])
    for _ in range(60):
        for peer in peers:
            peer.sends(frame(size)[-10:] + frame(size)[:-10])
        timers.advance(1000)
    assert min(peer.frames for peer in peers) > 10
    assert [peer.reason for peer in peers] == [""] * 5


def test_memory_that_comes_back_is_lent_to_a_few_connections_in_a_turn() -> None:
    """Each of them begins to be read, and takes the buffer of another one: all at once would be a long turn."""
    budget, timers = world(2 * LARGEST)
    holder, waiting = Peer(budget), [Peer(budget) for _ in range(12)]
    for large in (holder, Peer(budget)):
        large.sends(frame(LARGEST)[:-10])
    for peer in waiting:
        peer.sends(frame(FRAME_BYTES // 2)[:10_000])
    assert {peer.pauses for peer in waiting} == {1}
    budget.forget(holder.account)
    first = sum(not peer.pauses for peer in waiting)
    assert 0 < first < 12
    timers.advance(0)
    assert sum(not peer.pauses for peer in waiting) > first


def test_a_larger_buffer_is_taken_back_from_those_who_do_not_need_it() -> None:
    """Busy connections have room to read into as long as nobody needs it for a frame."""
    budget, _timers = world(2 * LARGEST)
    busy = [Peer(budget) for _ in range(6)]
    for peer in busy:
        peer.sends(frame(100) * 3_000)
    assert budget.held_bytes > LARGEST // 2
    large = [Peer(budget), Peer(budget)]
    for peer in large:
        peer.sends(frame(LARGEST)[:-1])
    assert [peer.pauses for peer in large] == [0, 0]
    for peer in busy:
        peer.sends(frame(100))
    assert [peer.frames for peer in busy] == [3_001] * 6


def _entry(payload_bytes: int) -> bytes:
    return seal_entry(
        MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), bytes(payload_bytes)
    )


def test_unfinished_frames_of_many_connections_take_bounded_memory(tmp_path: Path) -> None:
    """Many clients keep back the end of a frame of 5 MiB, which was 1 GiB. An honest one gets its own through."""
    body = _entry(MESSAGE_BYTES)
    whole = send_frame_head(0, 0, 1, len(body)) + body
    with RunningBroker(tmp_path / "data", {"maxUnfinishedInputSizeInMB": 16}) as broker, ExitStack() as stack:
        process = psutil.Process(broker.pid)
        clients = [stack.enter_context(RawClient(broker.service_url)) for _ in range(9)]
        before = process.memory_info().rss
        for client in clients:
            client.socket.settimeout(0.2)
            with suppress(TimeoutError):  # it is not read any more
                client.socket.sendall(whole[:-10])
        assert process.memory_info().rss - before < (16 + 24) * MIB
        with RawClient(broker.service_url) as honest:
            honest.socket.settimeout(300)
            must_succeed(honest.open_producer("large"))
            honest.socket.sendall(whole)
            assert honest.next_command().send_receipt.sequence_id == 0


def test_names_and_properties_are_bounded(broker: RunningBroker) -> None:
    """150 consumers with 5 MB of metadata were 781 MiB: Pulsar's limit for them, one of ours where it has none."""

    def refused(change: str, size: int) -> tuple[int, str]:
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        subscribe = command.subscribe
        subscribe.topic, subscribe.subscription, subscribe.subType = "bounded", "s", CommandSubscribe.Shared
        subscribe.consumer_id, subscribe.request_id = 1, 7
        if change == "name":
            subscribe.consumer_name = "x" * size
        else:
            getattr(subscribe, change).add(key="k", value="x" * (size - 1))
        with RawClient(broker.service_url) as client:
            answer = client.ask(command)
        return answer.error.error if answer.type == BaseCommand.ERROR else -1, answer.error.message

    for change, most, code in (
        ("metadata", 1024, ServerError.MetadataError),
        ("subscription_properties", PROPERTIES_BYTES_MAX, ServerError.NotAllowedError),
        ("name", CONSUMER_NAME_BYTES_MAX, ServerError.NotAllowedError),
    ):
        assert refused(change, most)[0] == -1
        error, message = refused(change, most + 1)
        assert (error, str(most) in message) == (code, True)

    command = BaseCommand(type=BaseCommand.PRODUCER)
    command.producer.topic, command.producer.producer_id, command.producer.request_id = "bounded", 1, 7
    command.producer.metadata.add(key="k", value="x" * PRODUCER_METADATA_BYTES_MAX)
    with RawClient(broker.service_url) as client:
        assert str(PRODUCER_METADATA_BYTES_MAX) in client.ask(command).error.message
