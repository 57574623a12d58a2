# SPDX-License-Identifier: Apache-2.0
"""The outgoing side of a connection, over a transport that only records."""

import asyncio
from collections.abc import Callable

from broker_core.server.budgets import MARK_BYTES_MIN, OutputBudget
from broker_core.server.outbox import HAND_OVER_BYTES, Outbox


class RecordingTransport(asyncio.Transport):
    """Keeps each write apart; says how much it holds only when told."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[bytes]] = []
        self.held_bytes = 0
        self.closing = False

    def write(self, data: object) -> None:
        self.writes.append([bytes(data)])  # type: ignore[call-overload]

    def writelines(self, list_of_data: object) -> None:
        self.writes.append(list(list_of_data))  # type: ignore[call-overload]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def get_write_buffer_size(self) -> int:
        return self.held_bytes


class Turn:
    """``call_soon`` of a loop whose turns end when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def end(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def attached() -> tuple[Outbox, RecordingTransport, Turn, list[str]]:
    """An outbox with all that is around it; the list notes when it became writable again."""
    turn, transport, heard = Turn(), RecordingTransport(), list[str]()
    outbox = Outbox(turn.call_soon, lambda: heard.append("writable"), OutputBudget(256 * 1024 * 1024))
    outbox.attach(transport, 8 * 1024 * 1024)
    return outbox, transport, turn, heard


def test_all_frames_of_one_turn_are_one_write_in_order() -> None:
    """Answers of one read and receipts of one group commit cost one system call together."""
    outbox, transport, turn, _ = attached()
    outbox.put(b"a")
    outbox.put_all([b"b", b"c"], 2)
    outbox.put(b"d")
    assert transport.writes == []
    turn.end()
    assert transport.writes == [[b"abcd"]]
    turn.end()
    assert len(transport.writes) == 1


def test_large_buffers_are_not_copied_into_one() -> None:
    """To tell the system of each costs less than a copy of them."""
    outbox, transport, turn, _ = attached()
    large = b"x" * (HAND_OVER_BYTES // 2)
    outbox.put_all([b"head", large], len(large) + 4)
    turn.end()
    ((head, body),) = transport.writes
    assert head == b"head"
    assert body is large


def test_a_large_pile_is_handed_over_before_the_turn_ends() -> None:
    """So that one pass of dispatch learns in time that the transport is full."""
    outbox, transport, turn, _ = attached()
    outbox.put_all([b"x" * HAND_OVER_BYTES], HAND_OVER_BYTES)
    assert len(transport.writes) == 1
    outbox.put(b"later")
    turn.end()
    assert transport.writes[1] == [b"later"]


def test_it_says_when_it_is_writable_again_and_only_then() -> None:
    """pause and resume come from the transport."""
    outbox, _, _, heard = attached()
    outbox.resume()
    assert heard == []
    seen = []
    for change in (outbox.pause, outbox.resume):
        change()
        seen.append(outbox.writable)
    assert seen == [False, True]
    assert heard == ["writable"]


def test_unsent_bytes_are_those_piled_up_and_those_the_transport_holds() -> None:
    """Both count against a client that does not read."""
    outbox, transport, turn, _ = attached()
    transport.held_bytes = 100
    outbox.put(b"12345")
    assert outbox.unsent_bytes == 105
    turn.end()
    assert outbox.unsent_bytes == 100


def test_after_the_connection_is_lost_everything_is_dropped() -> None:
    """Receipts of commits in flight still arrive here."""
    outbox, transport, turn, heard = attached()
    outbox.put(b"before")
    outbox.detach()
    outbox.put(b"after")
    outbox.resume()
    turn.end()
    assert transport.writes == []
    assert not outbox.writable
    assert heard == []


def test_a_transport_that_is_closing_is_not_written_to() -> None:
    """uvloop raises there, and the caller may be a dispatch to many."""
    outbox, transport, turn, _ = attached()
    transport.closing = True
    outbox.put_all([b"x" * HAND_OVER_BYTES], HAND_OVER_BYTES)
    outbox.put(b"y")
    turn.end()
    assert transport.writes == []


def test_what_is_held_back_leaves_in_order_with_all_that_came_behind_it() -> None:
    """2.4 A1: an answer that waits for its durability is not overtaken, and each hold must be released."""
    outbox, transport, turn, _ = attached()
    outbox.hold()
    outbox.put(b"answer")
    outbox.hold()
    outbox.put(b"another")
    outbox.put_all([bytes(HAND_OVER_BYTES)], HAND_OVER_BYTES)
    turn.end()
    outbox.release()
    assert transport.writes == []
    outbox.release()
    assert [len(each) for each in transport.writes[0]] == [6, 7, HAND_OVER_BYTES]
    outbox.put(b"later")
    turn.end()
    assert transport.writes[1] == [b"later"]


def test_dispatch_pauses_while_much_is_held_back() -> None:
    """Reliability row 20: a slow disk does not fill the memory with messages for those who wait for it."""
    outbox, transport, _, heard = attached()
    outbox.hold()
    for _ in range(9):
        outbox.put_all([bytes(1024 * 1024)], 1024 * 1024)
    assert not outbox.writable
    assert heard == []
    outbox.release()
    assert outbox.writable
    assert heard == ["writable"]
    assert len(transport.writes) == 1


def test_what_was_held_back_does_not_make_a_full_transport_writable() -> None:
    """Only its own word ends a transport's pause, for it gives no second one before it has drained."""
    outbox, transport, _, heard = attached()
    transport.held_bytes = 6 * 1024 * 1024  # it was above its high mark, and is not below its low one yet
    outbox.pause()
    outbox.hold()
    outbox.put(b"answer")
    outbox.release()
    assert transport.writes == [[b"answer"]]
    assert not outbox.writable
    outbox.resume()
    assert outbox.writable
    assert heard == ["writable"]


def test_a_connection_that_ends_says_first_what_is_held_back() -> None:
    """Closing waits for the release; one that must not speak is cut off instead."""
    outbox, transport, _, _ = attached()
    outbox.hold()
    outbox.put(b"answer")
    outbox.end()
    assert not transport.closing
    outbox.release()
    assert transport.writes == [[b"answer"]]
    assert transport.closing
    outbox, transport, _, _ = attached()
    outbox.hold()
    outbox.put(b"a lie")
    outbox.cut_off()
    assert transport.writes == []
    assert transport.closing


def test_the_more_clients_do_not_read_the_less_each_further_one_gets() -> None:
    """All of them together stay within the budget but for the least that everybody may have, and it is given back."""
    mib = 1024 * 1024
    budget = OutputBudget(64 * mib)
    clients = [(Outbox(Turn().call_soon, lambda: None, budget), RecordingTransport()) for _ in range(1000)]
    marks = []
    for outbox, transport in clients:
        outbox.attach(transport, 8 * mib)
        outbox.put(b"x" * HAND_OVER_BYTES)
        outbox.flush()
        marks.append(transport.limits[0] or 0)
        outbox.pause()
    assert marks == sorted(marks, reverse=True)
    assert (marks[0], marks[-1]) == (8 * mib, MARK_BYTES_MIN)
    assert 2 * sum(marks) <= 64 * mib + 1000 * 2 * MARK_BYTES_MIN
    for outbox, _ in clients[::2]:
        outbox.resume()
    for outbox, _ in clients[1::2]:
        outbox.detach()
    assert budget.stalled_bytes == 0
