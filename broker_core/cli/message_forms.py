# SPDX-License-Identifier: Apache-2.0
"""Messages on stdout, in one of three forms, and as one JSON object on stdin: what ``consume -o jsonl`` prints,
``produce --input jsonl`` reads back, with ``--schema`` if values are decoded, as those of messages with a schema are.

Text stays text; a key, ordering key or value that is not UTF-8 goes under ``keyBase64``, ``orderingKeyBase64`` or
``valueBase64`` instead, so every byte survives the way through a pipe. Times are integer milliseconds since the epoch.
A message to send says at least its value, or null if it has none; all else may be missing or null.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from broker_core.base.errors import UsageError
from broker_core.base.printable import printable, printable_json
from broker_core.cli.output import on_terminal, print_jsonl
from broker_core.schemas.avro.json_numbers import loaded

if TYPE_CHECKING:
    from broker_core.cli.typed_values import Payload, Shown
    from broker_core.client import Client, FileValue, Message


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
    | {"schemaVersion", "valueError"}
)


def to_json(message: Message, shown: Shown | None = None) -> dict[str, Any]:
    """The object of a received message. ``shown``: its decoded value, or why it is none; None: bytes are bytes."""
    row: dict[str, Any] = {"topic": message.topic, "messageId": str(message.message_id)}
    row.update(_bytes_field("key", message.key))
    if message.ordering_key is not None:
        row.update(_bytes_field("orderingKey", message.ordering_key))
    row.update(_bytes_field("value", message.value) if shown is None or shown.reason else {"value": shown.value})
    if shown is not None and shown.reason:
        row["valueError"] = shown.reason
    row["schemaVersion"] = message.schema_version
    row["properties"] = message.properties
    row["eventTime"] = message.event_time_ms or None
    row["publishTime"] = message.publish_time_ms
    row["producerName"] = message.producer_name
    row["sequenceId"] = message.sequence_id
    row["redeliveryCount"] = message.redelivery_count
    row["index"] = message.index if message.index >= 0 else None
    return row


def from_json(line: bytes, number: int, encode: Callable[[Any], Payload] | None = None) -> Outgoing:
    """The message of one line; UsageError names the line if it is not such an object. ``encode``: makes the payload of
    a value, which may be any JSON then."""
    try:
        row = loaded(line)
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
    ordering_key = _read_bytes(row, "orderingKey", number)
    if encode is None:
        return Outgoing(_read_bytes(row, "value", number), key, properties, event_time, ordering_key=ordering_key)
    if "value" not in row:
        raise _bad_line(number, 'it has "valueBase64", and with --schema its value is JSON')
    payload = encode(row["value"])
    key = payload.key if payload.has_key else key
    return Outgoing(payload.value, key, properties, event_time, ordering_key=ordering_key)


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
        decoded = ": is it decoded? Give --schema, or take what consume --raw prints" if name == "value" else ""
        raise _bad_line(number, f"{name} must be a text or null{decoded}")
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


raw_option = click.option(
    "--raw",
    "is_raw",
    is_flag=True,
    help="Show values as bytes. [default: those that name a schema are decoded by it; one that cannot be is shown as "
    "bytes with the reason]",
)


def message_printer(output: str | None, client: Client | None) -> Callable[[Message], None]:
    """The printer of messages in the form that was asked for; None: the one that fits who reads. ``client``: asks for
    the schemas by which values are decoded; None: they are not."""
    form = output or ("text" if on_terminal() else "jsonl")
    if form == "raw":
        return _show_raw
    show = _show_text if form == "text" else _show_json
    if client is None:
        return lambda message: show(message, None)
    decoded = _decoding(client)
    return lambda message: show(message, decoded(message))


def _decoding(client: Client) -> Callable[[Message], Shown | None]:
    """Decodes values. What that needs is imported when the first comes that names a schema."""
    decode: Callable[[Message], Shown | None] | None = None

    def decoded(message: Message) -> Shown | None:
        nonlocal decode
        if message.schema_version is None:
            return None
        if decode is None:
            from broker_core.cli.typed_values import DecodedValues

            decode = DecodedValues(client).shown
        return decode(message)

    return decoded


def _show_text(message: Message, shown: Shown | None) -> None:
    reason = "" if shown is None or not shown.reason else f"  (not decoded: {printable(shown.reason)})"
    value = printable(_text(message.value)) if shown is None or shown.reason else printable_json(shown.value)
    sys.stdout.write(f"{message.message_id}  {printable(_text(message.key))}  {value}{reason}\n")


def _show_raw(message: Message) -> None:
    if on_terminal():
        sys.stdout.write(printable(_text(message.value or b""), keep="\n\t") + "\n")
        return
    for piece in message.file.pieces() if message.file is not None else [message.value or b""]:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.write(b"\n")


def _show_json(message: Message, shown: Shown | None) -> None:
    print_jsonl([to_json(message, shown)])


def _text(content: str | bytes | None) -> str:
    if content is None:
        return "-"
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")
