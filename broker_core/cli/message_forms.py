# SPDX-License-Identifier: Apache-2.0
"""Messages on stdout, in one of three forms, and as one JSON object on stdin: what ``consume -o jsonl`` prints,
``produce --input jsonl`` reads back.

Text stays text; a key, ordering key or value that is not UTF-8 goes under ``keyBase64``, ``orderingKeyBase64`` or
``valueBase64`` instead, so every byte survives the way through a pipe. Times are integer milliseconds since the epoch.
A message to send says at least its value, or null if it has none; all else may be missing or null.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from broker_core.base.errors import UsageError
from broker_core.base.printable import printable
from broker_core.cli.output import on_terminal, print_jsonl

if TYPE_CHECKING:
    from broker_core.client import FileValue, Message


class Outgoing(NamedTuple):
    """One message to send."""

    value: bytes | FileValue | None
    key: str | bytes | None
    properties: Mapping[str, str]
    event_time_ms: int
    deliver_at_ms: int = 0
    deliver_after_s: float = 0
    ordering_key: bytes | None = None


_CONTENT = frozenset({"key", "orderingKey", "value"})
_READ = _CONTENT | {f"{name}Base64" for name in _CONTENT} | {"properties", "eventTime"}
_ONLY_WRITTEN = frozenset(
    {"topic", "messageId", "publishTime", "producerName", "sequenceId", "redeliveryCount", "index"}
)


def to_json(message: Message) -> dict[str, Any]:
    """The object of a received message."""
    row: dict[str, Any] = {"topic": message.topic, "messageId": str(message.message_id)}
    row.update(_bytes_field("key", message.key))
    if message.ordering_key is not None:
        row.update(_bytes_field("orderingKey", message.ordering_key))
    row.update(_bytes_field("value", message.value))
    row["properties"] = message.properties
    row["eventTime"] = message.event_time_ms or None
    row["publishTime"] = message.publish_time_ms
    row["producerName"] = message.producer_name
    row["sequenceId"] = message.sequence_id
    row["redeliveryCount"] = message.redelivery_count
    row["index"] = message.index if message.index >= 0 else None
    return row


def from_json(line: bytes, number: int) -> Outgoing:
    """The message of one line; UsageError names the line if it is not such an object."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad_line(number, f"it is not JSON ({error})") from error
    if not isinstance(row, dict):
        raise _bad_line(number, "it is not a JSON object")
    if unknown := row.keys() - _READ - _ONLY_WRITTEN:
        raise _bad_line(number, f'it has an unknown field "{min(unknown)}"')
    if row.keys().isdisjoint(("value", "valueBase64")):
        raise _bad_line(number, 'it has no "value" (null: a message without one)')
    properties = {} if row.get("properties") is None else row["properties"]
    if not isinstance(properties, dict) or not all(isinstance(v, str) for v in properties.values()):
        raise _bad_line(number, "properties must be an object of texts")
    event_time = 0 if row.get("eventTime") is None else row["eventTime"]
    if type(event_time) is not int:
        raise _bad_line(number, "eventTime must be milliseconds since the epoch")
    key = _read_field(row, "key", number)
    value, ordering_key = (_read_bytes(row, name, number) for name in ("value", "orderingKey"))
    return Outgoing(value, key, properties, event_time, ordering_key=ordering_key)


def _bytes_field(name: str, content: str | bytes | None) -> dict[str, str | None]:
    if not isinstance(content, bytes):
        return {name: content}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(content).decode()}


def _read_field(row: Mapping[str, Any], name: str, number: int) -> str | bytes | None:
    encoded = row.get(f"{name}Base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError) as error:
            raise _bad_line(number, f"{name}Base64 is not base64") from error
    plain = row.get(name)
    if plain is not None and not isinstance(plain, str):
        raise _bad_line(number, f"{name} must be a text or null")
    return plain


def _read_bytes(row: Mapping[str, Any], name: str, number: int) -> bytes | None:
    content = _read_field(row, name, number)
    try:
        return content.encode() if isinstance(content, str) else content
    except UnicodeEncodeError as error:
        raise _bad_line(number, f"its {name} is not a text that UTF-8 can express ({error})") from error


def _bad_line(number: int, why: str) -> UsageError:
    return UsageError(f"line {number} of the input is not a message: {why}", hint="see: pulsarish produce --help")


# -- printing


message_format_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "raw", "jsonl"]),
    help="text: id, key, value; raw: values, as they are unless a terminal would obey them; jsonl: everything, with "
    "each value in memory as a whole. [default: text on a terminal, else jsonl]",
)


def message_printer(output: str | None) -> Callable[[Message], None]:
    """The printer of messages in the form that was asked for; None: the one that fits who reads."""
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
    print_jsonl([to_json(message)])


def _text(content: str | bytes | None) -> str:
    if content is None:
        return "-"
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")


_SHOW: Final = {"text": _show_text, "raw": _show_raw, "jsonl": _show_json}
