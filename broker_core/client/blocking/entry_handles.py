# SPDX-License-Identifier: Apache-2.0
"""Blocking handles of entry readers, writers and consumers, and of cursors: only the crossing between threads.

Importing this must not load pyarrow.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from broker_core.base.errors import PulsarishError
from broker_core.base.positions import Position
from broker_core.client.blocking.handles import (
    Handle,
    Transaction,
    call_inner,
    post_to_loop,
    run_on_loop,
    start_on_loop,
    take_room,
)
from broker_core.client.blocking.loop_thread import LoopThread, shared_loop_thread
from broker_core.client.columnar.cursor_handle import AsyncCursor, CursorLook
from broker_core.client.columnar.entry_consumer import AsyncEntryConsumer
from broker_core.client.columnar.entry_reader import AsyncEntryReader
from broker_core.client.connecting.gathered import gathered, outcomes
from broker_core.wire.entry import EntryRef

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from broker_core.client.columnar.entry_writer import (
        AsyncEntryWriter,  # noqa: F401 - named by a string below
        EncodedRows,
    )


ACKS_AT_ONCE: Final = 5000
"""Acknowledgements wait for the broker's disk, and all that wait are in one write."""


class EntryReader(Handle[AsyncEntryReader]):
    """Iterates over the entries of a range, in lists as large as what has arrived. For one thread."""

    def __iter__(self) -> Iterator[list[EntryRef]]:
        """Raises OperationTimeoutError without progress, ChecksumMismatchError for a damaged entry."""
        while not self._inner.is_exhausted and (entries := self._thread.run(self._inner.next_entries())):
            yield entries

    def close(self) -> None:
        """Close the connection, unless the whole range was read: it has been left then. Harmless if closed."""
        if self._inner.is_exhausted:
            self._thread.start(self._inner.close())
        else:
            super().close()

    @property
    def first_position(self) -> Position | None:
        """Position of the first entry handed out: behind the start if the data between was deleted."""
        return self._inner.first_position

    @property
    def next_position(self) -> Position:
        """Position of the next entry: everything before it was handed out, or is not stored."""
        return self._inner.next_position

    @property
    def ended_early(self) -> bool:
        """True if the topic holds nothing more although the end was not reached."""
        return self._inner.ended_early


class EntryWriter(Handle["AsyncEntryWriter"]):
    """Writes Arrow record batches. For one thread: rows are encoded on it while earlier ones travel."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except PulsarishError as failure:
            if value is None or isinstance(value, Exception):
                raise
            value.add_note(str(failure))  # An interrupt stays one: it cuts off a write that waits for room.

    @property
    def rows_written(self) -> int:
        """Rows that ``write`` has taken."""
        return self._inner.rows_written

    @property
    def rows_confirmed(self) -> int:
        """Rows that the broker has stored."""
        return self._inner.rows_confirmed

    def write(self, rows: pa.RecordBatch) -> None:
        """Send ``rows``, with the columns of ``wire.batch.encode_entries``; returns when they fit in the window.

        Raises UsageError, or RowError for a row, for what cannot be sent (nothing of ``rows`` is sent then), and
        RowsUnconfirmedError after a failure.
        """
        self.send(self.encode(rows))

    @property
    def partitions(self) -> int:
        """Partitions to write to: 1 for a topic that has none."""
        return self._inner.partitions

    def encode(self, rows: pa.RecordBatch, partitions: NDArray[np.int64] | None = None) -> list[EncodedRows]:
        """The first half of ``write``, which finds all that is wrong with ``rows``. ``send`` must follow.

        ``partitions``: that of each row, or ``entry_writer.BY_KEY``; None: the keys decide.
        """
        self._thread.check_caller()
        inner = self._inner
        inner.check()
        routed = inner.route(rows, partitions)
        if closed := inner.closed_lanes(routed):
            self._thread.run(inner.open_lanes(closed))
        return inner.encode(rows, routed)

    def send(self, encoded: list[EncodedRows]) -> None:
        """The second half of ``write``. Where it is cut off, the writer has failed: rows are left that are not sent."""
        self._thread.check_caller()
        inner = self._inner
        try:
            for each in encoded:
                size = each.size_bytes
                if not inner.window.try_take(size):
                    take_room(inner.window, size, inner.timeout_s, inner.no_room)
                self._thread.post(inner.submit, each)
        except BaseException as cause:
            self._thread.post(inner.cut_off, cause)
            raise

    def flush(self) -> None:
        """Return when every row is stored; RowsUnconfirmedError says which may not be."""
        self._thread.run(self._inner.flush())


class EntryConsumer(Handle[AsyncEntryConsumer]):
    """Takes entries of a subscription that others may share. For one thread."""

    @property
    def failure(self) -> PulsarishError | None:
        """The reason why this consumer has ended, None while it is in use."""
        return self._inner.failure

    @property
    def session(self) -> int:
        """Count of attachments: with each the broker gives anybody the entries that it gave before."""
        return self._inner.session

    @property
    def has_given(self) -> bool:
        """Whether entries wait to be taken."""
        return self._inner.has_given

    @property
    def is_attached(self) -> bool:
        """Whether the consumer is at a broker now; if not, it is on its way back to one."""
        return self._inner.is_attached

    @property
    def has_permits(self) -> bool:
        """Whether the consumer is attached and the broker may give it something."""
        return self._inner.has_permits

    listen = post_to_loop(AsyncEntryConsumer.listen)
    resize = post_to_loop(AsyncEntryConsumer.resize)
    release = post_to_loop(AsyncEntryConsumer.release)
    give_back = post_to_loop(AsyncEntryConsumer.give_back)
    take = run_on_loop(AsyncEntryConsumer.take)
    start_ack = start_on_loop(AsyncEntryConsumer.ack)

    def start_ack_within(self, session: int, entries: Mapping[int, Sequence[int]], txn: Transaction) -> Future[None]:
        """``AsyncEntryConsumer.ack_within`` begun without waiting: the future has its result."""
        return self._thread.start(self._inner.ack_within(session, entries, txn.inner))

    mark_delete = run_on_loop(AsyncEntryConsumer.mark_delete)
    start_backlog = start_on_loop(AsyncEntryConsumer.backlog)


class CursorHandle(Handle[AsyncCursor]):
    """A durable subscription that is acknowledged but not read."""

    @property
    def inner(self) -> AsyncCursor:
        """The cursor on the event loop, for calls that concern many cursors at once."""
        return self._inner

    @property
    def failure(self) -> PulsarishError | None:
        """The reason why this handle has ended, None while it is in use."""
        return self._inner.failure

    @property
    def session(self) -> int:
        """Count of attachments to a broker; acks confirmed before the last one may be forgotten."""
        return self._inner.session

    ack_through = run_on_loop(AsyncCursor.ack_through)
    start_ack = start_on_loop(AsyncCursor.ack_through)
    needs = call_inner(AsyncCursor.needs)
    unsubscribe = run_on_loop(AsyncCursor.unsubscribe)
    mark_delete = run_on_loop(AsyncCursor.mark_delete)

    @classmethod
    def of_each(
        cls, thread: LoopThread, making: Coroutine[Any, Any, list[AsyncCursor | PulsarishError]]
    ) -> list[CursorHandle | PulsarishError]:
        """Handles of the cursors that ``making`` makes, and its failures. An interrupt closes all that is made by
        then."""
        made: list[AsyncCursor | PulsarishError] = []

        async def make() -> None:
            made.extend(await making)

        try:
            thread.run(make())
            return [each if isinstance(each, PulsarishError) else cls(thread, each) for each in made]
        except BaseException:
            thread.finish(lambda: _close_cursors([each for each in made if not isinstance(each, PulsarishError)]))
            raise

    expect = post_to_loop(AsyncCursor.expect)


# -- many cursors of one process: a call between threads for each would cost more than what it asks


def look_at_all(cursors: Sequence[CursorHandle]) -> list[CursorLook]:
    """The newest entry and the mark-delete position of each cursor, asked all at once."""
    return shared_loop_thread().run(gathered(lambda cursor: cursor.inner.look(), cursors))


def start_all_acks(acks: Sequence[tuple[CursorHandle, Position]]) -> Future[list[PulsarishError | None]]:
    """Acknowledge each cursor's entries up to a position; the future has the failures when all are confirmed or not."""
    return shared_loop_thread().start(outcomes(lambda ack: ack[0].inner.ack_through(ack[1]), acks, ACKS_AT_ONCE))


def close_all(cursors: Sequence[CursorHandle]) -> None:
    """Leave all the subscriptions, which stay."""
    shared_loop_thread().run(_close_cursors([each.inner for each in cursors]))


async def _close_cursors(cursors: Sequence[AsyncCursor]) -> None:
    await gathered(lambda cursor: cursor.close(), cursors)
