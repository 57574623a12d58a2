# SPDX-License-Identifier: Apache-2.0
"""Times and spans of time as users write them: milliseconds, ISO 8601, "an hour ago". Pure.

A ``Moment`` that counts back from now is turned into milliseconds by ``at``, with the one "now" of a read: so all
partitions of a read mean the same time by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

LONG_MAX: Final = 2**63 - 1
"""No broker knows a larger id, index or time."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_SPAN: Final = re.compile(r"(\d{1,18})\s*(ms|s|m|min|h|d|w)")
_DATED: Final = re.compile(r"\d{4}-\d\d-\d\d")
"""The date before a time of day. Message ids have colons, but no date before them."""

_FINER: Final = re.compile(r"[.,]\d{6}(\d+)")
"""Digits behind the microseconds, which ``datetime`` drops."""

_TIME_FORMS: Final = "milliseconds since 1970, a time like 2026-01-01T00:00:00Z, or one counted back from now like -1h"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in milliseconds since the epoch, below 0 before it; ``is_ago``: so many milliseconds before now."""

    ms: int
    is_ago: bool = False

    def at(self, now_ms: int) -> int:
        """Milliseconds since the epoch, no further back than 64 bits go."""
        return max(now_ms - self.ms, -LONG_MAX) if self.is_ago else self.ms

    def published_at(self, now_ms: int) -> int:
        """As ``at`` for publish times: brokers know none before the epoch, and no message is as old."""
        return max(self.at(now_ms), 0)


def parse_moment(text: str) -> Moment:
    """Any form; ValueError says what is wrong with it."""
    written = text.strip()
    if written.isdecimal():
        if int(written) > LONG_MAX:
            raise ValueError("it is no time in milliseconds: too large")
        return Moment(int(written))
    if (moment := written_moment(written)) is None:
        raise ValueError(f"it takes {_TIME_FORMS}")
    return moment


def written_moment(text: str, *, local: bool = False) -> Moment | None:
    """A time that cannot be taken for anything else than a time, as a place in a topic; None if ``text`` is none.

    A time without a zone is one of this machine's if ``local``, and else refused: a job may run on another machine.
    """
    if text.startswith("-") and (span := _SPAN.fullmatch(text[1:].strip().lower())):
        return Moment(_span_ms(span), is_ago=True)
    if not _DATED.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"it takes {_TIME_FORMS}") from error
    if moment.tzinfo is None:
        if not local:
            raise ValueError("it has no time zone; write 2026-01-01T00:00:00Z")
        moment = _local(moment)
    return Moment(_whole_ms(moment, text))


def _local(moment: datetime) -> datetime:
    try:
        return moment.astimezone()
    except (ValueError, OverflowError):
        return moment.replace(tzinfo=UTC)  # It is too far away to be told as local time.


def _whole_ms(moment: datetime, text: str) -> int:
    """The first whole millisecond at or behind a time, which ``text`` may tell to less than a microsecond.

    Messages have whole milliseconds, and a bound divides them into those before it and those at or behind it: so does
    the next whole millisecond, and no other one.
    """
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    if (finer := _FINER.search(text)) and int(finer[1]):
        microseconds += 1
    return -(-microseconds // 1000)


def parse_span_s(text: str) -> float:
    """Seconds, from a text like ``15m`` or a number of milliseconds, as Spark reads one."""
    written = text.strip().lower()
    span_s = written_span_s(f"{written}ms" if written.isdecimal() else written)
    if span_s is None:
        raise ValueError("it takes a span of time like 30s, 15m or 1h")
    return span_s


def written_span_s(text: str) -> float | None:
    """Seconds, from a number with its unit like ``15m``; None if ``text`` is none."""
    span = _SPAN.fullmatch(text.strip().lower())
    return None if span is None else _span_ms(span) / 1000


def time_text(time_ms: int) -> str:
    """Milliseconds since the epoch, for errors: as ISO 8601, or the number where that does not go so far."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(time_ms)


def _span_ms(span: re.Match[str]) -> int:
    return int(span[1]) * _UNIT_MS[span[2]]
