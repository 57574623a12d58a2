# SPDX-License-Identifier: Apache-2.0
"""``DiskReserve``: the last of the disk is not for producers, so that a disk that fills up does not stop the broker.

A write that the disk refuses stops the broker for good, and with it the consumers that could have made room. So while
less than the reserve is free, no producer is accepted, and the connected ones are sent away; their clients come back,
and are told to wait (as under a backlog quota with the policy ``producer_request_hold``). Acknowledgements, deletions
and all that they write go on; deletable data is looked for more often (``Upkeep.make_room``), in open ledgers too.

How large the reserve must be: between two looks at the disk an eighth of it may be committed, and one group more; then
what clients have sent is still to be written. Either of these is at most ``maxMessagePublishBufferSizeInMB``, but for
one read of each connection. What remains is for the cursor log, written anew (8 MiB, or what the cursors hold), the
catalogue, and delayed buckets. By default 256 MiB, of which 160 are for entries. A disk smaller than ten times the
setting keeps a tenth of its size instead: that may be too little for fast producers, but a larger part would leave no
disk to use. Nor does a reserve help against another program that fills the disk within a second.
"""

from __future__ import annotations

import logging
from typing import Final

from broker_core.base.errors import ProducerBlockedQuotaError
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.storage.store import Store

logger = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024

_PART_OF_DISK: Final = 10
"""The reserve is at most this fraction of the disk: one tenth."""

_LOOKS: Final = 8
"""The disk is looked at so many times while as much is written as the reserve holds."""

_MARGIN: Final = 4
"""Producers may come back when a quarter of the reserve is free beyond it; with less they would come and go."""

_BUFFERS: Final = 3
"""The reserve should hold as many publish buffers: one in flight, one that waits, and some more (see above)."""


class DiskReserve:
    """Whether the disk has room for what producers send; ``low`` is true while it has not.

    ``watched`` is false if there is nothing to look at: it is switched off, or the disk does not say how large it is.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._most_bytes = settings.disk_reserve_mbytes * _MIB
        self._reserve_bytes = self._free_bytes = self._looked_at_bytes = 0
        self.low = False
        self.look()
        self.watched = self._reserve_bytes > 0
        least_mbytes = _BUFFERS * settings.max_message_publish_buffer_size_in_mb
        if 0 < settings.disk_reserve_mbytes < least_mbytes:
            logger.warning(
                "the disk reserve is less than fast producers may fill before they are stopped diskReserveMbytes=%d "
                "maxMessagePublishBufferSizeInMB=%d advice=%s",
                settings.disk_reserve_mbytes,
                settings.max_message_publish_buffer_size_in_mb,
                f"set it to {least_mbytes} or more, or lower the other",
            )

    @property
    def due(self) -> bool:
        """Whether so much was written since the last look that the next one should not wait."""
        written = self._store.commits.bytes_committed - self._looked_at_bytes
        return self.watched and written * _LOOKS >= self._reserve_bytes

    def look(self) -> None:
        """Ask the disk, and set ``low``."""
        self._looked_at_bytes = self._store.commits.bytes_committed
        try:
            self._free_bytes, total_bytes = self._store.space()
        except OSError:
            return  # if something is wrong with the disk, the next write shows it
        self._reserve_bytes = self._reserve_of(total_bytes)
        enough_bytes = self._reserve_bytes + (self._reserve_bytes // _MARGIN if self.low else 0)
        if self.low is not (self._free_bytes < enough_bytes):
            self.low = not self.low
            self._tell()

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether the reserve is still free once so much more was written; the disk is asked each time."""
        try:
            free_bytes, total_bytes = self._store.space()
        except OSError:
            return True
        return not self.watched or free_bytes - size_bytes >= self._reserve_of(total_bytes)

    def _reserve_of(self, total_bytes: int) -> int:
        """The reserve of a disk of this size."""
        return min(self._most_bytes, total_bytes // _PART_OF_DISK)

    def refusal(self, topic: TopicName) -> ProducerBlockedQuotaError | None:
        """Why no producer is accepted now; None if one is."""
        if not self.low:
            return None
        return ProducerBlockedQuotaError(
            f"producing to {topic} is stopped: the disk of the broker has {self._free_bytes / _MIB:.1f} MiB left, "
            f"and the last {self._reserve_bytes / _MIB:.1f} MiB are not for messages",
            hint="free space on the disk of the data directory, or consume, skip or delete what is stored",
        )

    def _tell(self) -> None:
        figures = (self._store.directory, self._free_bytes / _MIB, self._reserve_bytes / _MIB)
        if self.low:
            logger.warning(
                "the disk is nearly full and producers have to wait directory=%s free_mib=%.1f reserve_mib=%.1f "
                "advice=%s",
                *figures,
                "free space, or consume, skip or delete what is stored",
            )
        else:
            logger.warning(
                "the disk has room again and producers may go on directory=%s free_mib=%.1f reserve_mib=%.1f", *figures
            )
