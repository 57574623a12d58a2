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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import click

from broker_core.base.errors import PulsarishError
from broker_core.base.printable import printable, printable_json

Format = Literal["table", "json", "jsonl"]
Row = Mapping[str, Any]

FORMATS: Final = ("table", "json", "jsonl")
_PIPED_WIDTH: Final = 400
"""Columns of a table that was asked for in a pipe: wide enough that nothing is cut."""

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

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, (key, value) in enumerate(rows[0].items()):
        number = isinstance(value, int) and not isinstance(value, bool)
        # On a narrow terminal nothing is cut off, and the name, which comes first, stays in one piece.
        table.add_column(key.upper(), justify="right" if number else "left", no_wrap=place == 0, overflow="fold")
    for row in rows:
        table.add_row(*(printable(_cell(key, value)) for key, value in row.items()))
    width = None if on_terminal() else _PIPED_WIDTH
    Console(markup=False, highlight=False, emoji=False, soft_wrap=True, width=width).print(table)


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
    """What a backlog counts, as Pulsar does: a batch is one entry, however many messages it holds."""
    return counted(count, "entry", "entries")


def say(text: str) -> None:
    """Talk to the person at the terminal, a line: progress, confirmations, hints. Never data."""
    tell(printable(text), None)


def report_error(error: PulsarishError) -> None:
    """What failed, why, and what to do, each on its own line, on stderr."""
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
