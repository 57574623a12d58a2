# SPDX-License-Identifier: Apache-2.0
"""``TopicCompaction``: the compaction of one loaded topic: its view, the horizon of that, and how the last run went.

The horizon is also the mark-delete position of the cursor ``__compaction``: it is a ``LedgerHolder``, so entries that
were not compacted yet are not trimmed. Both are one value of the catalogue (``storage.views``), so none can move
without the other, and no client and no administrator moves it by other means. A run that fails, or that a crash or an
unload ends, leaves view and horizon as they were.
Source: Pulsar docs, "Topic compaction"; semantics 7.4.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import Final, Protocol

from broker_core.base.clock import Clock
from broker_core.base.errors import NotAllowedError, PersistenceServerError, StorageError
from broker_core.base.names import TopicName
from broker_core.base.positions import POSITION_EARLIEST, Position
from broker_core.base.settings import Settings
from broker_core.broker.compaction.compactor import Compactor, Job
from broker_core.broker.compaction.entry_keys import BatchWork, Steps
from broker_core.broker.compaction.run import CompactionRun, Input
from broker_core.broker.transactions.buffer import TransactionBuffer
from broker_core.storage.commit import OnDurable
from broker_core.storage.topic_log import TopicLog
from broker_core.storage.view_file import DamagedViewError
from broker_core.storage.views import View, ViewRow, ViewStore, ViewWriter

logger = logging.getLogger(__name__)

CURSOR_NAME: Final = "__compaction"
"""The subscription as which compaction is shown, as in Pulsar."""


class Status(Enum):
    """How the last run went; of a topic that was just loaded nobody knows of any."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


class Reserve(Protocol):
    """The last of the disk, which no view may fill."""

    def has_room_for(self, size_bytes: int) -> bool: ...


class CompactedTopic(Protocol):
    """The topic, as its compaction sees it."""

    name: TopicName
    topic_id: int
    log: TopicLog
    clock: Clock
    settings: Settings
    buffer: TransactionBuffer

    @property
    def reserve(self) -> Reserve: ...


class Figures:
    """Counters of the runs since the topic was loaded, for statistics. Times are milliseconds, 0 for never; throughputs
    are bytes per second of the last run."""

    def __init__(self) -> None:
        self.removed_last = self.removed_total = 0
        self.succeeded_ms = self.failed_ms = self.duration_ms = 0
        self.succeeded = self.failed = 0
        self.read_throughput = self.write_throughput = 0.0


class TopicCompaction:
    """The compaction of one topic.

    Attributes:
        view: The newest view; without entries if there is none, or if its file is lost.
        damage: Why the view cannot be read, if so.
        status, last_error: How the last run went.
        figures: Counters of all runs.
    """

    def __init__(self, topic: CompactedTopic, views: ViewStore, compactor: Compactor) -> None:
        self.status = Status.NOT_RUN
        self.last_error = ""
        self.figures = Figures()
        self.damage: StorageError | None = None
        self._topic = topic
        self._log = topic.log
        self._views = views
        self._compactor = compactor
        self._job: Job | None = None
        self._writer: ViewWriter | None = None
        self._superseded: list[View] = []
        self._row = views.row(topic.topic_id)
        self.view = self._opened(self._row or ViewRow())
        self.settings_changed()

    def _opened(self, row: ViewRow) -> View:
        try:
            return self._views.open(self._topic.topic_id, row)
        except DamagedViewError as error:
            self.damage = error
            return View(row, None)

    # -- the cursor

    @property
    def has_cursor(self) -> bool:
        """Whether the cursor of compaction exists: the topic was compacted, or its threshold was set."""
        return self._row is not None

    @property
    def has_view(self) -> bool:
        """Whether the topic was compacted."""
        return self.view.horizon > POSITION_EARLIEST

    @property
    def horizon(self) -> Position:
        """The mark-delete position of the cursor: the last entry that the view accounts for."""
        return self.view.horizon

    @property
    def released_through(self) -> Position:
        """For retention: what is not compacted yet is still needed; all of the log if a lost view can be made of it."""
        return POSITION_EARLIEST if self._can_begin_anew else self.view.horizon

    @property
    def _can_begin_anew(self) -> bool:
        """Whether the view is lost, and the log still has everything from the first entry on."""
        return self.damage is not None and self._log.trimmed == POSITION_EARLIEST

    def when_released(self, on_durable: OnDurable) -> None:
        """For retention: call ``on_durable`` when the view is durable that accounts for these entries."""
        self._views.when_recorded(on_durable)

    def settings_changed(self) -> None:
        """A threshold may have been set: from now on nothing is trimmed that was not compacted."""
        if self._row is None and self._threshold:
            self._set_row(ViewRow())

    @property
    def _threshold(self) -> int:
        return self._topic.settings.broker_service_compaction_threshold_in_bytes

    def _set_row(self, row: ViewRow | None) -> None:
        self._row = row
        self._views.set_row(self._topic.topic_id, row)

    def check_readable(self) -> None:
        """PersistenceServerError if the view is lost: what is left would look like all there is."""
        if self.damage is not None:
            raise PersistenceServerError(
                f"the compacted view of {self._topic.name} is lost: {self.damage.message}",
                hint="restore its file from a backup, or read without readCompacted",
            )

    # -- runs

    def request(self) -> None:
        """Compact what has come since the last run; NotAllowedError while one runs or waits. Nothing happens if
        nothing has come."""
        if self._job is not None:
            raise NotAllowedError(
                f"{self._topic.name} is being compacted already", hint="wait until that run has ended"
            )
        if self._log.readable_end.entry >= 0 and self._log.readable_end > self.horizon:
            self.status, self.last_error = Status.RUNNING, ""
            self._begin()

    def start_if_due(self) -> None:
        """Compact if more than the threshold has come since the last run."""
        self.remove_superseded()
        end = self._log.readable_end
        if self._job is None and 0 < self._threshold < self._log.bytes_between(self.horizon, end):
            self.request()

    @property
    def is_running(self) -> bool:
        """Whether a run goes on or waits."""
        return self._job is not None

    def _begin(self) -> None:
        run: CompactionRun | None = None
        began_s = self._topic.clock.monotonic()

        def begin() -> Steps:
            nonlocal run, began_s
            began_s = self._topic.clock.monotonic()
            run = self._made_run()
            return run.steps()

        def finished(failure: str | None) -> None:
            duration_ms = int((self._topic.clock.monotonic() - began_s) * 1000)
            self._job = None
            if failure is None:
                assert run is not None
                failure = self._publish(run)
            self._ended(failure, duration_ms, run)

        self._job = Job(begin, finished)
        self._compactor.add(self._job)

    def _made_run(self) -> CompactionRun:
        view = self.view
        if self.damage is not None:
            if not self._can_begin_anew:
                raise PersistenceServerError(
                    f"the view before is lost, and entries that it was made of are deleted: {self.damage.message}",
                    hint="restore its file from a backup, or delete the subscription __compaction to begin anew",
                )
            view = View(ViewRow(), None)
        view.readers.add(self)
        settings = self._topic.settings
        self._writer = self._views.writer(self._topic.topic_id)
        return CompactionRun(
            Input(view, self._log, self._topic.buffer.aborted, settings.auto_skip_non_recoverable_data),
            self._log.readable_end,
            self._writer,
            BatchWork(self._views.aside),
            self._topic.clock,
            self._topic.reserve.has_room_for,
            keep_keyless=settings.topic_compaction_retain_null_key,
        )

    def _publish(self, run: CompactionRun) -> str | None:
        """Switch to the view that ``run`` has made; why that is impossible, if it is."""
        if run.row is None:
            return None
        try:
            view = self._views.open(self._topic.topic_id, run.row)
        except DamagedViewError as error:
            return f"what was written cannot be read: {error.message}"
        self.damage = None
        self._writer = None
        self._switch(view, run.row)
        logger.info(
            "compacted topic=%s through=%s messages=%d kept=%d", self._topic.name, run.through, run.messages, run.kept
        )
        return None

    def _switch(self, view: View, row: ViewRow | None) -> None:
        """In memory first: so readers never meet deleted entries with an old horizon. Nothing is deleted before the
        new row is durable."""
        former, self.view = self.view, view
        self._set_row(row)
        former.left_by(self)
        self._superseded.append(former)
        for reader in [reader for each in self._superseded for reader in each.readers]:
            reader.superseded()
        self.remove_superseded()

    def _ended(self, failure: str | None, duration_ms: int, run: CompactionRun | None) -> None:
        self.view.left_by(self)
        figures, now_ms = self.figures, self._topic.clock.now_ms()
        figures.duration_ms = duration_ms
        if failure is None:
            self.status = Status.SUCCESS
            figures.succeeded += 1
            figures.succeeded_ms = now_ms
        else:
            logger.error("compaction failed topic=%s error=%s", self._topic.name, failure)
            self.status, self.last_error = Status.ERROR, failure
            figures.failed += 1
            figures.failed_ms = now_ms
        self._give_up_writer()
        if run is not None:
            figures.removed_last = run.removed
            figures.removed_total += figures.removed_last
            figures.read_throughput = run.bytes_read * 1000 / max(duration_ms, 1)
            figures.write_throughput = run.bytes_written * 1000 / max(duration_ms, 1)

    def _give_up_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.give_up()

    def remove_superseded(self) -> None:
        """Remove the files of former views that nobody reads any more."""
        for view in [each for each in self._superseded if not each.readers]:
            self._superseded.remove(view)
            self._views.remove(self._topic.topic_id, view.number)

    def superseded(self) -> None:
        """A run has ended when its view is the newest, so it reads the one before no more."""

    # -- the end

    def _abort(self) -> None:
        """End a run that goes on or waits; nothing of it stays."""
        if self._job is not None:
            self._job.cancelled = True
            self._job = None
            self.view.left_by(self)
            self.status, self.last_error = Status.ERROR, "the run was ended: its topic, or its cursor, was let go"
        self._give_up_writer()

    def close(self) -> None:
        """The topic is unloaded. Files of former views that somebody reads are removed at the next start."""
        self._abort()
        self.remove_superseded()

    def remove(self) -> None:
        """Delete the cursor with the view: what is read is the log again. The next change of policies, or the next
        load, makes the cursor anew where a threshold is set."""
        self._abort()
        self.damage = None
        self._switch(View(ViewRow(), None), None)

    def truncate(self) -> None:
        """Everything up to now is to be deleted, the view too, and what a first run has read."""
        self._abort()
        if self._row is not None:
            self.damage = None
            ledger, entry = self._log.readable_end
            row = ViewRow(ledger, entry)
            self._switch(View(row, None), row)

    def delete(self) -> None:
        """The topic is deleted, and its row with it."""
        self._abort()
        for view in [*self._superseded, self.view]:
            self._views.remove(self._topic.topic_id, view.number)
