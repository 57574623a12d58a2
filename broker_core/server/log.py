# SPDX-License-Identifier: Apache-2.0
"""The log of a broker process: one line for each record, with time and level, as text or JSON, on stderr or in a file.

Code says what happened as ``event name=%s name=%s``; this turns it into lines. A line never breaks and never grows
beyond ``LINE_CHARACTERS_MAX``, whatever a client put into it. Of one event at most ``LINES_A_WINDOW`` are written in
``WINDOW_S``; the rest is counted, and the count is told. A file begins anew at ``FILE_BYTES_MAX``; the one before
it is kept. Knows nothing of brokers.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

import msgspec

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.errors import ConfigError
from broker_core.base.printable import printable
from broker_core.base.private_files import private_opener
from broker_core.base.settings import LogFormat

LINE_CHARACTERS_MAX: Final = 2000
"""Length of a message. Names of topics have at most 1 KiB; a longer text is some client's payload."""

LINES_A_WINDOW: Final = 20
WINDOW_S: Final = 10.0
"""In so many seconds each event may have ``LINES_A_WINDOW`` lines. With 100 bytes a line and some 40 events in the
code, at most 0.7 GB a day are written if all of them happen all the time."""

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of the log file; with its predecessor it takes twice this on disk."""

_OURS: Final = "broker_core"
_STDERR: Final = 2
_EVENT_FIELD: Final = re.compile(r"\s*\b(\w+)=%(?:[-+#0 ]*\d*(?:\.\d+)?)[a-zA-Z]")


class Repeats(logging.Filter):
    """Lets the first lines of an event through and counts the rest; ``tell`` says how many those were.

    An event is what the code says, without the values: no client can make new ones.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], _Window] = {}
        self._lock = threading.RLock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "repeated", 0):
            return True  # our own count
        key = (record.name, str(record.msg))
        with self._lock:
            window = self._seen.get(key)
            if window is not None and self._is_over(window):
                self._tell(key)
                window = None
            if window is None:
                window = self._seen[key] = _Window(record.levelno, self._clock.monotonic())
            window.lines += 1
            return window.lines <= LINES_A_WINDOW

    def tell(self, *, all_of_them: bool = False) -> None:
        """Log the counts of the windows that are over, or of all."""
        with self._lock:
            for key in [key for key, window in self._seen.items() if all_of_them or self._is_over(window)]:
                self._tell(key)

    def _is_over(self, window: _Window) -> bool:
        return self._clock.monotonic() - window.begun_s >= WINDOW_S

    def _tell(self, key: tuple[str, str]) -> None:
        window = self._seen.pop(key)
        more = window.lines - LINES_A_WINDOW
        if more > 0:
            logging.getLogger(key[0]).log(
                window.level,
                "lines left out repeated=%s count=%d seconds=%.0f",
                event_of(key[1]),
                more,
                self._clock.monotonic() - window.begun_s,
                extra={"repeated": more},
            )


@dataclass(slots=True)
class _Window:
    """How often an event was logged since ``begun_s``."""

    level: int
    begun_s: float
    lines: int = 0


def event_of(message: str) -> str:
    """Event of a line, without the values: ``message`` up to its first ``name=%s``."""
    found = _EVENT_FIELD.search(message)
    return message[: found.start()] if found else message


class _TextLines(logging.Formatter):
    """``2026-11-23T05:20:14.123Z INFO connection closed peer=...``; a trace follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time_of(record)} {record.levelname} {_safe(record.getMessage())}"
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return line + "".join(f"\n    {_safe(each)}" for each in trace.splitlines())


class _JsonLines(logging.Formatter):
    """One object for each record: time, level, event, logger, the values of the event by name, perhaps a trace."""

    def format(self, record: logging.LogRecord) -> str:
        values = _values_of(record)
        line: dict[str, object] = {"time": _time_of(record), "level": record.levelname.lower()}
        line["event"] = event_of(str(record.msg)) if values else _safe(record.getMessage())
        line["logger"] = record.name
        line |= {name: value for name, value in values.items() if name not in line}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _values_of(record: logging.LogRecord) -> dict[str, object]:
    names = _EVENT_FIELD.findall(str(record.msg))
    values = record.args if isinstance(record.args, tuple) else ()
    if not names or len(names) != len(values):
        return {}
    return {
        name: value if isinstance(value, int | float) else _safe(str(value))
        for name, value in zip(names, values, strict=True)
    }


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _safe(text: str) -> str:
    """On one line, of bounded length, without what a terminal would obey."""
    if len(text) > LINE_CHARACTERS_MAX:
        text = f"{text[:LINE_CHARACTERS_MAX]}... ({len(text)} characters)"
    return printable(text)


class _LogFile(RotatingFileHandler):
    """A file of bounded size that this process's stderr goes to as well, also after it has begun anew."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES_MAX, backupCount=1, encoding="utf-8")
        self._take_stderr()

    def doRollover(self) -> None:  # noqa: N802 - as the standard library calls it
        super().doRollover()
        self._take_stderr()

    def _open(self) -> TextIOWrapper:
        return TextIOWrapper(open(self.baseFilename, "ab", opener=private_opener), encoding="utf-8")

    def _take_stderr(self) -> None:
        if self.stream is not None:
            sys.stderr.flush()
            os.dup2(self.stream.fileno(), _STDERR)


class Log:
    """The log of this process, from ``begin`` on."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._repeats = Repeats(clock or SystemClock())

    def begin(self, level: str, line_format: LogFormat, file: str) -> None:
        """Write what is logged from now on. ConfigError if ``file`` ("": stderr) cannot be had."""
        handler = self._handler(file)
        handler.setFormatter(_JsonLines() if line_format == "json" else _TextLines())
        handler.addFilter(self._repeats)
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(logging.WARNING)  # what libraries say
        logging.getLogger(_OURS).setLevel(level.upper())

    def _handler(self, file: str) -> logging.Handler:
        if not file:
            return logging.StreamHandler(sys.stderr)
        path = Path(file).absolute()
        try:
            return _LogFile(path)
        except OSError as error:
            raise ConfigError(
                f"the log file {path} cannot be written: {error.strerror}", hint="choose another for logFile"
            ) from error

    def tell_repeats(self, *, at_end: bool = False) -> None:
        """Say how many lines were left out; to be called now and then, and at the end."""
        self._repeats.tell(all_of_them=at_end)
