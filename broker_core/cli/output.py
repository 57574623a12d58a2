# SPDX-License-Identifier: Apache-2.0
"""Everything that is printed: rows of data on stdout, talk and errors on stderr.

On a terminal rows are a table for people; anywhere else they are JSON lines for programs, unless ``-o`` says otherwise.
Field names in JSON are stable, and Pulsar's own where Pulsar has one; values in JSON are exact, in tables humanised.
Characters that a terminal would obey are escaped in each of them (``base.printable``).
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import PulsarishError
from broker_core.base.printable import printable, printable_json

Format = Literal["table", "json", "jsonl"]
Row = Mapping[str, Any]

FORMATS: Final = ("table", "json", "jsonl")
_PIPED_WIDTH: Final = 400
"""Columns of a table that was asked for in a pipe: wide enough that nothing is cut."""

_GAP: Final = 2
"""Blanks between two columns."""

_FOLDED_MIN: Final = 8
"""Columns of the terminal that a folded text has at least."""

format_option = click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(FORMATS),
    default=None,
    help="How to print. [default: table on a terminal, jsonl in a pipe]",
)


def on_terminal() -> bool:
    """True if stdout is read by a person."""
    return sys.stdout.isatty()


def print_rows(
    rows: Sequence[Row], output: Format | None, *, empty: str = "", columns: Collection[str] | None = None
) -> None:
    """Print rows that share their keys; ``columns``: only these are in a table.

    ``empty`` is said on stderr when there are none and a person reads.
    """
    chosen = output or ("table" if on_terminal() else "jsonl")
    if chosen == "json":
        click.echo(printable_json(list(rows), indent=2))
    elif chosen == "jsonl":
        print_jsonl(rows)
    elif rows:
        _print_table([{key: row[key] for key in row if columns is None or key in columns} for row in rows])
    elif empty:
        say(empty)


def print_jsonl(rows: Iterable[Row]) -> None:
    """One JSON object on each line."""
    for row in rows:
        sys.stdout.write(printable_json(row) + "\n")


def _print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    width = None if on_terminal() else _PIPED_WIDTH
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)
    names = [key.upper() for key in rows[0]]
    cells = [[printable(_cell(key, value)) for key, value in row.items()] for row in rows]
    numeric = [{type(row[key]) for row in rows} - {type(None)} == {int} for key in rows[0]]
    widths = [_least_width(name, column, whole=numeric[place] or not place)
              for place, (name, column) in enumerate(zip(names, zip(*cells, strict=True), strict=True))]  # fmt: skip
    if sum(widths) + _GAP * (len(widths) - 1) > console.width:
        _print_records(names, cells, console.width)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for place, name in enumerate(names):
        justify: Literal["right", "left"] = "right" if numeric[place] else "left"
        # Nothing is cut off: long texts fold, but heads, numbers, and the name, which comes first, stay in one piece.
        is_whole = numeric[place] or not place
        table.add_column(name, justify=justify, no_wrap=is_whole, overflow="fold", min_width=widths[place])
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _least_width(name: str, column: Sequence[str], *, whole: bool) -> int:
    """Columns of the terminal that a column of the table takes at least; ``whole``: nothing in it may be folded."""
    from rich.cells import cell_len

    longest = max(map(cell_len, column))
    return max(cell_len(name), longest if whole else min(longest, _FOLDED_MIN))


def _print_records(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> None:
    """Rows for a terminal that is too narrow for a table: the first value of each, and the others below it."""
    from rich.cells import cell_len

    for first, *others in cells:
        click.echo(first)
        line = ""
        for name, cell in zip(names[1:], others, strict=True):
            pair = f"  {name.lower()} {cell}"
            if line and cell_len(line) + cell_len(pair) > width:
                click.echo(line)
                line = ""
            line += pair
        if line:
            click.echo(line)


def _cell(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return human_bytes(value) if key.lower().endswith("size") else f"{value:,}"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value) or "-"
    return str(value)


def human_bytes(count: int) -> str:
    """``1536`` as ``1.5 KiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(count: int, one: str, many: str) -> str:
    """``1 entry``, ``2,000 entries``."""
    return f"{count:,} {one if count == 1 else many}"


def entries(count: int) -> str:
    """Entries as a backlog counts them, in words: a batch is one entry, however many messages it holds."""
    return counted(count, "entry", "entries")


def say(text: str) -> None:
    """Talk to the person at the terminal, a line: progress, confirmations, hints. Never data."""
    tell(printable(text), None)


def report_error(error: PulsarishError) -> None:
    """The failure, its reason and what to do, each on its own line, on stderr."""
    what, _, why = printable(error.message, keep="\n\t").partition(": ")
    red = click.style("error:", fg="red", bold=True)
    lines = [f"{red} {what}", why, printable(error.hint, keep="\n\t")]
    for line in lines:
        if line:
            tell(line, colour_wanted(sys.stderr.isatty()))


def tell(text: str, color: bool | None = None) -> None:
    """Write ``text`` to stderr. If stderr takes nothing, that changes neither the work done nor the exit code."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True, color=color)


def colour_wanted(terminal: bool) -> bool | None:
    """False if the user set NO_COLOR; otherwise the terminal decides."""
    import os

    return False if os.environ.get("NO_COLOR") else terminal


# -- progress

INTERVAL_S: Final = 2.0

progress_option = click.option(
    "--progress/--no-progress",
    "shows_progress",
    default=None,
    help="Tell messages, bytes and rate on stderr every 2 s. [default: if stderr is a terminal and stdout is none]",
)


@contextlib.contextmanager
def progress(moved: Callable[[], tuple[int, int]], wanted: bool | None) -> Iterator[None]:
    """Within the block tell how many messages and bytes ``moved`` says, until now and in each second."""
    shows = sys.stderr.isatty() and not on_terminal() if wanted is None else wanted
    if not shows:
        yield
        return
    is_over = threading.Event()
    thread = threading.Thread(target=_tell, args=(moved, is_over), name="pulsarish-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _tell(moved: Callable[[], tuple[int, int]], is_over: threading.Event) -> None:
    clock = SystemClock()
    begun_s = before_s = clock.monotonic()
    before_bytes = 0
    while not is_over.wait(INTERVAL_S):
        (messages, size), now_s = moved(), clock.monotonic()
        _say(messages, size, (size - before_bytes) / (now_s - before_s))
        before_s, before_bytes = now_s, size
    messages, size = moved()
    _say(messages, size, size / max(clock.monotonic() - begun_s, 0.001))


def _say(messages: int, size: int, rate: float) -> None:
    say(f"{counted(messages, 'message', 'messages')}, {human_bytes(size)}, {human_bytes(round(rate))}/s")
