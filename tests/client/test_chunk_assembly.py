# SPDX-License-Identifier: Apache-2.0
"""Putting chunks together: the traces of the rules, and random streams against a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.base.positions import Position
from broker_core.client.chunks.chunk_assembly import DROPPED_MAX, ChunkAssembly, ChunkInfo, Outcome
from broker_core.client.messages.file_value import in_memory

EXPIRE_S = 60.0
WHEN_MS = 1_000_000


class Stream:
    """Chunks named as in the rules (A0 is chunk 0 of message A), each at the next entry of a log."""

    def __init__(self, sizes: dict[str, int], **options: object) -> None:
        settings = {"max_pending": 10, "expire_s": EXPIRE_S, "auto_ack_oldest": False, "orphan_expire_s": EXPIRE_S}
        chosen = settings | options
        self.assembly = ChunkAssembly(**chosen)  # type: ignore[arg-type]
        self.sizes = sizes
        self.at: dict[str, Position] = {}
        self.entries = 0
        self.now_s = 0.0

    def put(self, name: str, *, mark: str = "", again: bool = False) -> Outcome:
        """Deliver a chunk at a new position, remembered as ``name + mark``; ``again``: at the position it had."""
        label = name + mark
        if not again:
            self.at[label] = Position(1, self.entries)
            self.entries += 1
        uuid, chunk = name[0], int(name[1:])
        count = self.sizes[uuid]
        info = ChunkInfo(uuid, chunk, count, 2 * count, WHEN_MS)
        return self.assembly.receive(info, self.at[label], part_of(name), self.now_s, WHEN_MS + int(self.now_s * 1000))

    def positions(self, *names: str) -> tuple[Position, ...]:
        return tuple(self.at[name] for name in names)


def part_of(name: str) -> bytes:
    return name[:2].encode()


def test_interleaved_messages_come_when_their_last_chunk_does() -> None:
    """5.3.4, 5.3.5 (I5.2, trace): A0 B0 A1 B1 A2 gives B with the id of B1, then A with that of A2."""
    stream = Stream({"A": 3, "B": 2})
    assert [stream.put(name) for name in ("A0", "B0", "A1")] == [Outcome()] * 3
    joined = stream.put("B1").joined
    assert joined is not None
    assert (joined.payload, joined.positions) == (b"B0B1", stream.positions("B0", "B1"))
    joined = stream.put("A2").joined
    assert joined is not None
    assert (joined.payload, joined.positions) == (b"A0A1A2", stream.positions("A0", "A1", "A2"))
    assert (len(stream.assembly), stream.assembly.buffered_bytes) == (0, 0)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_the_oldest_makes_room(auto_ack: bool) -> None:
    """5.3.1, 5.3.6, 5.3.8 (trace): with room for one, B0 drops A; B is delivered, what is left of A is not."""
    stream = Stream({"A": 3, "B": 2}, max_pending=1, auto_ack_oldest=auto_ack)
    stream.put("A0")
    dropped = stream.put("B0")
    gone = stream.positions("A0")
    assert (dropped.acks, dropped.awaits) == ((gone, ()) if auto_ack else ((), gone))
    assert stream.put("B1").joined is not None
    for name in ("A1", "A2"):
        outcome = stream.put(name)
        left = stream.positions(name)
        assert (outcome.orphans, outcome.awaits) == ((left, ()) if auto_ack else ((), left))


def test_what_made_room_can_come_again() -> None:
    """5.3.6: chunks that had to make room and were not acknowledged make a message when they are delivered again."""
    stream = Stream({"A": 2, "B": 2}, max_pending=1)
    for name in ("A0", "B0", "B1", "A1"):
        stream.put(name)
    stream.put("A0", again=True)
    joined = stream.put("A1", again=True).joined
    assert joined is not None
    assert joined.positions == stream.positions("A0", "A1")


def test_a_gap_ends_the_message() -> None:
    """5.3.3 (trace): A0 A2 is a gap, which forgets A; A1 behind it is an orphan."""
    stream = Stream({"A": 3})
    stream.put("A0")
    gap = stream.put("A2")
    assert (gap.joined, gap.orphans) == (None, stream.positions("A0", "A2"))
    assert stream.put("A1").orphans == stream.positions("A1")
    assert len(stream.assembly) == 0


def test_a_duplicate_is_acknowledged_and_a_redelivery_is_not() -> None:
    """5.3.3 (trace): A0 A1 A1' A2 is delivered once; A1' has a place of its own and is acked, A1 again is not."""
    stream = Stream({"A": 3})
    stream.put("A0")
    stream.put("A1")
    assert stream.put("A1", mark="'").acks == stream.positions("A1'")
    assert stream.put("A1", again=True) == Outcome()
    joined = stream.put("A2").joined
    assert joined is not None
    assert (joined.payload, joined.positions) == (b"A0A1A2", stream.positions("A0", "A1", "A2"))


def test_a_first_chunk_again_begins_anew() -> None:
    """5.3.2: redelivered from its start the message begins anew; sent again, what came before is acknowledged."""
    stream = Stream({"A": 2})
    stream.put("A0")
    assert stream.put("A0", again=True) == Outcome()
    assert stream.put("A0", mark="'").acks == stream.positions("A0")
    joined = stream.put("A1").joined
    assert joined is not None
    assert joined.positions == stream.positions("A0'", "A1")


def test_what_stays_incomplete_expires() -> None:
    """5.3.7 (I5.4, trace): A0, then 61 s of silence: A0 is acked; A1 and A2 are too old to wait for anything."""
    stream = Stream({"A": 3})
    stream.put("A0")
    assert stream.assembly.expire(EXPIRE_S - 1) == []
    assert stream.assembly.expire(EXPIRE_S + 1) == [stream.positions("A0")]
    stream.now_s = EXPIRE_S + 1
    assert [stream.put(name).acks for name in ("A1", "A2")] == [stream.positions("A1"), stream.positions("A2")]


def test_without_expiry_nothing_is_given_up() -> None:
    """5.3.7: an expiry of 0 keeps incomplete messages, and orphans are never too old."""
    stream = Stream({"A": 3}, expire_s=0.0, orphan_expire_s=0.0)
    stream.put("A0")
    stream.now_s = 1e9
    assert stream.assembly.expire(stream.now_s) == []
    assert stream.put("A1") == Outcome()
    assert stream.put("A1", mark="'").acks == stream.positions("A1'")
    fresh = Stream({"A": 3}, expire_s=0.0, orphan_expire_s=0.0)
    fresh.now_s = 1e9
    assert fresh.put("A2").orphans == fresh.positions("A2")


def test_sizes_that_do_not_add_up_are_not_delivered() -> None:
    """5.3.5 (I5.3): a message of other than its stated size is refused, at the latest with its last chunk."""
    for parts in ((b"aa", b"b"), (b"aa", b"bbb"), (b"aaaaa", b"")):
        assembly = ChunkAssembly(max_pending=10, expire_s=EXPIRE_S, auto_ack_oldest=False, orphan_expire_s=EXPIRE_S)
        outcomes = [
            assembly.receive(ChunkInfo("A", number, 2, 4, WHEN_MS), Position(1, number), part, 0.0, WHEN_MS)
            for number, part in enumerate(parts)
        ]
        assert all(outcome.joined is None for outcome in outcomes)
        assert sum(bool(outcome.mismatch) for outcome in outcomes) == 1
        given_up = {each for outcome in outcomes for each in outcome.orphans}
        assert given_up == {Position(1, 0), Position(1, 1)}
        assert assembly.buffered_bytes == 0


def test_the_memory_of_what_made_room_is_bounded() -> None:
    """I5.3: however many messages had to make room, a fixed number of them is remembered."""
    assembly = ChunkAssembly(max_pending=1, expire_s=EXPIRE_S, auto_ack_oldest=False, orphan_expire_s=EXPIRE_S)
    for number in range(DROPPED_MAX + 5):
        assembly.receive(ChunkInfo(f"u{number}", 0, 2, 4, WHEN_MS), Position(1, number), b"ab", 0.0, WHEN_MS)
    forgotten = assembly.receive(ChunkInfo("u0", 1, 2, 4, WHEN_MS), Position(2, 0), b"ab", 0.0, WHEN_MS)
    known = assembly.receive(ChunkInfo("u9", 1, 2, 4, WHEN_MS), Position(2, 1), b"ab", 0.0, WHEN_MS)
    assert (forgotten.orphans, known.awaits) == ((Position(2, 0),), (Position(2, 1),))


counts = st.lists(st.integers(2, 5), min_size=1, max_size=6)


@given(counts, st.integers(0, 6), st.randoms(use_true_random=False))
def test_streams_that_fit_are_all_delivered(chunks: list[int], room: int, random: object) -> None:
    """I5.2: for any interleaving all messages come, in the order of their last chunks, if enough may be open."""
    sizes = {chr(65 + number): count for number, count in enumerate(chunks)}
    stream = Stream(sizes, max_pending=room)
    queue = [name for name, count in sizes.items() for _ in range(count)]
    random.shuffle(queue)  # type: ignore[attr-defined]
    sent: dict[str, int] = dict.fromkeys(sizes, 0)
    open_now: set[str] = set()
    most_open, delivered, last_chunks = 0, [], []
    for name in queue:
        outcome = stream.put(f"{name}{sent[name]}")
        sent[name] += 1
        open_now.add(name)
        most_open = max(most_open, len(open_now))
        if sent[name] == sizes[name]:
            open_now.discard(name)
            last_chunks.append(name)
        if outcome.joined is not None:
            delivered.append(in_memory(outcome.joined.payload)[:1].decode())
            assert outcome.joined.payload == b"".join(f"{name}{index}".encode() for index in range(sizes[name]))
    if room == 0 or most_open <= room:
        assert delivered == last_chunks
    else:
        assert [each for each in last_chunks if each in delivered] == delivered


@settings(max_examples=300)
@given(st.data())
def test_nothing_partial_is_ever_delivered(data: st.DataObject) -> None:
    """I5.3, I5.5: loss, duplication, reorder and expiry in any mix: whole payloads only, and every entry that was taken
    is in exactly one place: in an incomplete message, in a delivered one, or given up once."""
    sizes = {"A": 2, "B": 3, "C": 4}
    room = data.draw(st.integers(0, 3), "room")
    stream = Stream(sizes, max_pending=room, auto_ack_oldest=data.draw(st.booleans(), "auto ack"))
    settled: dict[Position, str] = {}
    taken: set[Position] = set()

    def settle(outcome: Outcome) -> None:
        for kind in ("acks", "awaits", "orphans"):
            for position in getattr(outcome, kind):
                assert position not in settled
                settled[position] = kind

    def expired(now_s: float) -> Outcome:
        return Outcome(acks=tuple(each for message in stream.assembly.expire(now_s) for each in message))

    for _ in range(data.draw(st.integers(1, 40), "steps")):
        if data.draw(st.integers(0, 9)) == 0:
            stream.now_s += data.draw(st.sampled_from([1.0, 30.0, 61.0]))
            settle(expired(stream.now_s))
            continue
        uuid = data.draw(st.sampled_from("ABC"))
        name = f"{uuid}{data.draw(st.integers(0, sizes[uuid] - 1))}"
        mark = f"#{stream.entries}"
        outcome = stream.put(name, mark=mark)
        taken.add(stream.at[name + mark])
        settle(outcome)
        if outcome.joined is not None:
            assert outcome.joined.payload == b"".join(f"{uuid}{index}".encode() for index in range(sizes[uuid]))
            assert list(outcome.joined.positions) == sorted(outcome.joined.positions)
            for position in outcome.joined.positions:
                assert position not in settled
                settled[position] = "delivered"
        open_bytes = 2 * (len(taken) - len(settled))
        assert stream.assembly.buffered_bytes == open_bytes
        assert room == 0 or len(stream.assembly) <= room
    held = len(stream.assembly)
    assert (stream.assembly.oldest_received_s is None) == (held == 0)
    assert len(stream.assembly.first_positions) == held
    settle(expired(stream.now_s + EXPIRE_S))
    assert set(settled) == taken
    assert len(stream.assembly) == 0
