# SPDX-License-Identifier: Apache-2.0
"""Names of all files of a data directory, and its format version. No other module builds a path.

    <data dir>/
      FORMAT              one line: what this is and which format version, written and synced before anything else
      LOCK                held by the owning process; its text is the process id
      catalogue           names, policies and the list of ledgers: a snapshot, and the changes since
      catalogue.copy      the same, a second time
      marks               the newest commit mark of each open log, a second time
      ledgers/<id>.log    entries of one ledger
      cursors/<n>.log     acknowledgements of all subscriptions; the catalogue says which n is current
      delayed/<t>-<n>.bucket  a snapshot of delayed messages of topic t; derived from the ledgers, may be deleted
      compacted/<t>-<n>.view  the entries of topic t that its compaction has kept, maybe all that is left of them
      quarantine/         copies of bytes that failed a checksum, for an investigation

Names come from numbers only, never from what a user typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker_core.base.runtime import DATA_LOCK_FILE

FORMAT_VERSION: Final = 4
"""Version of the whole directory. Since 3 it knows transactions (TXN records, and their tables in the catalogue), since
4 schemas of topics, a table."""

READABLE_VERSIONS: Final = (2, 3, FORMAT_VERSION)
"""Versions that a broker opens; an older one becomes FORMAT_VERSION by that. Others are refused with a hint."""

_FORMAT_TEXT = re.compile(rb"pulsarish data directory, format (\d{1,9})\n")
_NUMBERED = re.compile(r"(0|[1-9]\d{0,18})\.log")
_QUARANTINED_LEDGER = re.compile(r"ledgers-(0|[1-9]\d{0,18})-\d+\.bin")
_BUCKET = re.compile(r"(\d{1,18})-(\d{1,18})\.bucket")
_VIEW = re.compile(r"(\d{1,18})-(\d{1,18})\.view")

_Path = Callable[[str], str]
_NumberedPath = Callable[[str, int], str]

format_path: Final[_Path] = "{}/FORMAT".format
lock_path: Final[_Path] = f"{{}}/{DATA_LOCK_FILE}".format
catalogue_path: Final[_Path] = "{}/catalogue".format
catalogue_copy_path: Final[_Path] = "{}/catalogue.copy".format
marks_path: Final[_Path] = "{}/marks".format
ledgers_dir: Final[_Path] = "{}/ledgers".format
cursors_dir: Final[_Path] = "{}/cursors".format
delayed_dir: Final[_Path] = "{}/delayed".format
views_dir: Final[_Path] = "{}/compacted".format
quarantine_dir: Final[_Path] = "{}/quarantine".format
ledger_path: Final[_NumberedPath] = "{}/ledgers/{}.log".format
cursor_log_path: Final[_NumberedPath] = "{}/cursors/{}.log".format


def format_text() -> bytes:
    """Content of the FORMAT file."""
    return b"pulsarish data directory, format %d\n" % FORMAT_VERSION


def parse_format(text: bytes) -> int | None:
    """The version that a FORMAT file names, or None if it is no such file."""
    found = _FORMAT_TEXT.fullmatch(text)
    return int(found[1]) if found else None


def parse_number(name: str) -> int | None:
    """The number of ``<number>.log``, or None if the name is of another form."""
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found else None


def bucket_name(topic_id: int, number: int) -> str:
    return f"{topic_id}-{number}.bucket"


def parse_bucket(name: str) -> tuple[int, int] | None:
    """Topic id and number of a bucket's file name, or None if it is of another form."""
    found = _BUCKET.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def view_name(topic_id: int, number: int) -> str:
    return f"{topic_id}-{number}.view"


def parse_view(name: str) -> tuple[int, int] | None:
    """Topic id and number of a compacted view's file name, or None if it is of another form."""
    found = _VIEW.fullmatch(name)
    return (int(found[1]), int(found[2])) if found else None


def quarantine_path(directory: str, source: str, offset: int) -> str:
    """Path of the copy of damaged bytes at ``offset`` of ``source``: ``ledgers-7-4096.bin``."""
    folder, name = source.rsplit("/", 2)[-2:]
    return f"{directory}/quarantine/{folder}-{name.removesuffix('.log')}-{offset}.bin"


def parse_quarantined_ledger(name: str) -> int | None:
    """The ledger that a copy with this name is of, or None if it is of something else."""
    found = _QUARANTINED_LEDGER.fullmatch(name)
    return int(found[1]) if found else None


def set_aside_path(path: str, number: int) -> str:
    """Path of the copy of a whole file that was found damaged at ``number``: ``catalogue-12.bin``."""
    folder, name = path.rsplit("/", 1)
    return f"{folder}/quarantine/{name}-{number}.bin"
