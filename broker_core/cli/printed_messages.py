# SPDX-License-Identifier: Apache-2.0
"""Messages on stdout, in one of three forms, and the option that chooses: the same for every command that shows any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from broker_core.base.printable import printable
from broker_core.cli.output import on_terminal, print_jsonl

if TYPE_CHECKING:
    from broker_core.client import Message


message_format_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "raw", "jsonl"]),
    help="text: id, key, value; raw: values, as they are unless a terminal would obey them; jsonl: everything, with "
    "each value in memory as a whole. [default: text on a terminal, else jsonl]",
)


def message_printer(output: str | None) -> Callable[[Message], None]:
    """What prints a message in the form that was asked for; None: the one that fits who reads."""
    return _SHOW[output or ("text" if on_terminal() else "jsonl")]


def _show_text(message: Message) -> None:
    key, value = (printable(_text(content)) for content in (message.key, message.value))
    sys.stdout.write(f"{message.message_id}  {key}  {value}\n")


def _show_raw(message: Message) -> None:
    if on_terminal():
        sys.stdout.write(printable(_text(message.value or b""), keep="\n\t") + "\n")
        return
    for piece in message.file.pieces() if message.file is not None else [message.value or b""]:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"\n")


def _show_json(message: Message) -> None:
    from broker_core.cli.message_json import to_json

    print_jsonl([to_json(message)])


def _text(content: str | bytes | None) -> str:
    if content is None:
        return "-"
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")


_SHOW: Final = {"text": _show_text, "raw": _show_raw, "jsonl": _show_json}
