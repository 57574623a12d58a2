# SPDX-License-Identifier: Apache-2.0
"""``pulsarish produce``: messages from the command line or from stdin, ids of what was stored on stdout.

An id is printed only after the broker confirmed the message, in the order of the input. Behind the first message that
fails nothing more is sent: whoever sends the rest of the input again, under the same sequence ids, loses none of it.
A command that ends before its input says how much of it is stored. Who stops reading the ids stops no message.
"""

from __future__ import annotations

import io
import select
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import click

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.cli.interrupts import ends_in_order
from broker_core.cli.output import counted, on_terminal, print_jsonl, progress, progress_option, say
from broker_core.cli.parameter_types import TIME_FORMS, Seconds, time_if_one
from broker_core.cli.schema_files import type_option
from broker_core.cli.target import Target, target_options

if TYPE_CHECKING:
    from broker_core.base.positions import MessageId
    from broker_core.cli.line_schema import LineSchema
    from broker_core.cli.message_forms import Outgoing
    from broker_core.client import Client, FileValue, Producer
    from broker_core.client.blocking.handles import Receipt
    from broker_core.client.settings.config import AccessMode, CompressionName
    from broker_core.client.settings.options import ProducerOptions
    from broker_core.schemas.info import SchemaInfo

_TIME_DIGITS_MAX: Final = 20
"""A time of more digits is none that a message can say."""

_UNCONFIRMED_MAX: Final = 10_000
"""Messages in flight. Enough for full batches, few enough that a refusal stops the input soon."""

_WHOLE_BYTES_MAX: Final = 1024 * 1024
"""Files up to this size are read at once: those that are read in parts stay open until they are sent."""


@click.command()
@click.argument("topic")
@click.option(
    "-m",
    "--message",
    "messages",
    metavar="TEXT",
    multiple=True,
    help="One message; may be repeated. [default: lines of stdin]",
)
@click.option(
    "-f",
    "--file",
    "files",
    metavar="PATH",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="The content of a file as one message; may be repeated. With --chunking and without --compression a large "
    "one is never in memory as a whole.",
)
@click.option("-k", "--key", help="Key of every message.")
@click.option(
    "--ordering-key", metavar="KEY", help="Of every message: decides its Key_Shared consumer, not its partition."
)
@click.option("--split-key", metavar="SEPARATOR", help="Take the key of each line from before the first SEPARATOR.")
@click.option(
    "-p", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property of every message."
)
@click.option("--event-time", metavar="TIME", help=f"Of every message: milliseconds since the epoch, {TIME_FORMS}.")
@click.option(
    "--deliver-after",
    metavar="SECONDS",
    type=Seconds(0),
    default=0.0,
    help="Hold every message back so long.",
)
@click.option("--deliver-at", metavar="TIME", help="Hold every message back until then; a time as for --event-time.")
@click.option(
    "--input",
    "form",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="What stdin holds: a value on each line, or objects as consume -o jsonl prints them, each with its value or "
    "null.",
)
@click.option(
    "--schema",
    "which",
    metavar="topic|TYPE|FILE",
    help="Values are JSON (of strings text), checked and encoded by this schema: `topic` is that of TOPIC; FILE has "
    "one that TOPIC gets if it is compatible, and so does TYPE, such as string or int64.",
)
@type_option("--schema-type")
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zlib", "zstd", "snappy"]),
    default="none",
    show_default=True,
    help="How to compress batches.",
)
@click.option("--name", metavar="NAME", help="Name of the producer. [default: one that the broker makes up]")
@click.option(
    "--access-mode",
    type=click.Choice(["shared", "exclusive", "wait-for-exclusive", "exclusive-with-fencing"]),
    default="shared",
    show_default=True,
    help="Who else may produce to TOPIC meanwhile.",
)
@click.option(
    "--initial-sequence-id",
    metavar="ID",
    type=click.IntRange(min=-1),
    help="Number the messages from after this one, so that a topic with deduplication stores each number of a "
    "NAME once; no batches then. [default: the last one that the broker knows]",
)
@click.option(
    "--chunking",
    is_flag=True,
    help="Send messages that are larger than the broker takes at once in chunks; no batches then.",
)
@click.option(
    "--no-batching", is_flag=True, help="Send each message as an entry of its own: slower, and counted one by one."
)
@click.option(
    "--batch-by-key",
    is_flag=True,
    help="Put only messages of one key into a batch, as Key_Shared consumers need it.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="How to print message ids.",
)
@progress_option
@target_options
def produce(
    target: Target,
    topic: str,
    messages: tuple[str, ...],
    files: tuple[str, ...],
    key: str | None,
    ordering_key: str | None,
    split_key: str | None,
    properties: tuple[str, ...],
    event_time: str | None,
    deliver_after: float,
    deliver_at: str | None,
    form: str,
    which: str | None,
    kind: str | None,
    compression: CompressionName,
    name: str | None,
    access_mode: str,
    initial_sequence_id: int | None,
    chunking: bool,
    no_batching: bool,
    batch_by_key: bool,
    output: str,
    shows_progress: bool | None,
) -> None:
    """Send messages to TOPIC and print their ids.

    \b
    pulsarish produce hello -m hi
    seq 1000 | pulsarish produce numbers
    pulsarish consume a --exit -o jsonl | pulsarish produce b --input jsonl
    pulsarish produce photos -f large.tif --chunking
    pulsarish produce reminders -m tea --deliver-after 240
    pulsarish produce orders --name loader --initial-sequence-id -1 < orders.txt
    pulsarish produce orders --schema topic -m '{"id": 7, "city": null}'
    """
    from broker_core.cli.message_forms import Outgoing

    _check_said_once(key, split_key, deliver_at, deliver_after)
    _check_name(name)
    common = Outgoing(
        None,
        None if key is None else _text_if_possible(_as_given(key)),
        _properties(properties),
        _time_ms("--event-time", event_time),
        _due_ms(deliver_at),
        deliver_after,
        None if ordering_key is None else _as_given(ordering_key),
    )
    source = _Input(messages, files, form, split_key, common, in_parts=chunking)
    source.check(key, ordering_key, event_time, properties)
    if kind is not None and which is None:
        raise UsageError("--schema-type is for --schema", hint="name the file with the schema")
    options: ProducerOptions = {
        **_batching(by_key=batch_by_key, chunking=chunking, numbered=initial_sequence_id is not None, none=no_batching),
        "name": name,
        "access_mode": cast("AccessMode", access_mode.replace("-", "_")),
        "initial_sequence_id": initial_sequence_id,
        "compression": compression,
        "send_timeout_s": target.timeout_s,
        "block_if_queue_full": True,
    }
    with target.client() as client:
        outgoing = source.outgoing(None)
        if which is not None:
            options["schema"], outgoing = source.encoded(client, topic, which, kind)
        _produce(client, topic, options, outgoing, output, shows_progress=shows_progress)


class _Input(NamedTuple):
    """The values to send, as the command line has them, or says how to read them from stdin. ``common``: what all
    messages have. ``in_parts``: those of large files need not be in memory."""

    messages: tuple[str, ...]
    files: tuple[str, ...]
    form: str
    split_key: str | None
    common: Outgoing
    in_parts: bool

    @property
    def is_given(self) -> bool:
        """Whether the command line has them."""
        return bool(self.messages or self.files)

    def check(self, *on_each_line: object) -> None:
        """UsageError where ``on_each_line``, or what else a line of objects says, is said by options too."""
        if self.form == "jsonl" and (
            self.is_given or self.split_key is not None or any(each is not None and each != () for each in on_each_line)
        ):
            hint = "leave out -m, -f, -k, -p, --ordering-key, --split-key and --event-time"
            raise UsageError("with --input jsonl each line says it all", hint=hint)

    def encoded(
        self, client: Client, topic: str, which: str, kind: str | None
    ) -> tuple[SchemaInfo, Iterator[Outgoing]]:
        """The schema that ``--schema`` names, and the messages encoded by it."""
        from broker_core.cli.line_schema import LineSchema, checked_first, schema_to_use

        schema = LineSchema(schema_to_use(client, topic, which, kind))
        return schema.info, checked_first(lambda: self.outgoing(schema), are_given=self.is_given)

    def outgoing(self, schema: LineSchema | None) -> Iterator[Outgoing]:
        """The messages, encoded by ``schema`` if there is one."""
        if self.form == "jsonl":
            return _from_json_lines(self.common, schema)
        in_parts = self.in_parts and self.split_key is None and schema is None
        values = _lines(self.messages, self.files, in_parts=in_parts)
        lines = (_from_line(line, self.common, self.split_key) for line in values)
        return lines if schema is None else schema.encoded(lines, "value" if self.is_given else "line")


def _produce(
    client: Client,
    topic: str,
    options: ProducerOptions,
    outgoing: Iterator[Outgoing],
    output: str,
    *,
    shows_progress: bool | None = False,
) -> None:
    stopping: ProducerOptions = {**options, "stop_after_failure": True}
    with ends_in_order():
        producer = client.create_producer(topic, **stopping)
        sending = _Sending(producer, output)
        try:
            with progress(lambda: _confirmed(producer), shows_progress):
                sending.send_all(outgoing)
        except BaseException:  # an interrupt too: whoever ends the command learns what is stored
            if sending.sent:
                say(f"confirmed as stored: {sending.stored:,} of {counted(sending.sent, 'message', 'messages')}")
            raise
        finally:
            producer.close()
    if on_terminal():
        say(f"{counted(sending.stored, 'message', 'messages')} stored in {producer.topic}")


def _check_said_once(key: str | None, split_key: str | None, deliver_at: str | None, deliver_after: float) -> None:
    if split_key == "":
        raise UsageError("--split-key is empty", hint="give what stands between key and value, such as :")
    if split_key and key is not None:
        raise UsageError("-k and --split-key both say the key", hint="give one of them")
    if deliver_at is not None and deliver_after:
        raise UsageError("--deliver-at and --deliver-after both say the time", hint="give one of them")


def _check_name(name: str | None) -> None:
    if name == "":
        raise UsageError("--name is empty", hint="write a name, or leave it out for one that the broker makes up")


def _batching(*, by_key: bool, chunking: bool, numbered: bool, none: bool) -> ProducerOptions:
    """Options of batches. Chunks are in none, nor numbers that somebody chose: of a batch only the lowest one is
    compared, so that one which is half known would be dropped whole."""
    if by_key and (chunking or numbered or none):
        other = "--chunking" if chunking else "--initial-sequence-id" if numbered else "--no-batching"
        raise UsageError(f"--batch-by-key has no effect with {other}, which makes no batches", hint="give one of them")
    return {
        "batching_enabled": not (chunking or numbered or none),
        "batching_type": "key_based" if by_key else "default",
        "chunking_enabled": chunking,
    }


def _lines(messages: tuple[str, ...], files: tuple[str, ...], *, in_parts: bool) -> Iterator[bytes | FileValue]:
    """The values on the command line, or those of stdin. ``in_parts``: those of large files need not be in memory."""
    if messages or files:
        return chain(map(_as_given, messages), (_content(path, in_parts=in_parts) for path in files))
    return stdin_lines()


def _confirmed(producer: Producer) -> tuple[int, int]:
    stats = producer.stats()
    return stats.messages_confirmed, stats.bytes_confirmed


class _Sending:
    """One input on its way: ``sent`` messages, of which ``stored`` are confirmed. Ids are printed as they come.

    The input is sent to its end also if nobody reads the ids any more, as behind ``head -1``.
    """

    def __init__(self, producer: Producer, output: str) -> None:
        self.sent = 0
        self.stored = 0
        self._lost_reader = False
        self._producer = producer
        self._output = output
        self._in_flight: deque[Receipt] = deque()

    def send_all(self, messages: Iterator[Outgoing]) -> None:
        """Send, and print ids as they are confirmed."""
        at_once = sys.stdin.isatty()
        try:
            for message in messages:
                self._send(message)
                # A message behind a large value would wait for room no longer than for an answer.
                is_large = not isinstance(message.value, bytes | None)
                while self._in_flight and (
                    at_once or is_large or self._in_flight[0].is_known or len(self._in_flight) >= _UNCONFIRMED_MAX
                ):
                    self._print_first()
            self._print_rest()
        except BaseException:
            # The input broke off, a message was refused, a signal came, or stdout takes nothing: what else was sent is
            # stored, and its sender must learn where.
            self._print_rest()
            raise

    def _send(self, message: Outgoing) -> None:
        from broker_core.client.blocking.handles import Receipt

        receipt = Receipt()
        self._producer.send_async(
            message.value,
            callback=receipt.settle,
            key=message.key,
            ordering_key=message.ordering_key,
            properties=message.properties,
            event_time_ms=message.event_time_ms,
            deliver_at_ms=message.deliver_at_ms,
            deliver_after_s=message.deliver_after_s,
        )
        self._in_flight.append(receipt)
        self.sent += 1

    def _print_rest(self) -> None:
        """Print the ids of all that is stored; raises the first failure of the others."""
        self._producer.flush()
        failures: list[PulsarishError | OSError] = []
        while self._in_flight:
            try:
                self._print_first()
            except PulsarishError as failure:
                failures.append(failure)
                self._in_flight.popleft()
            except OSError as failure:  # of stdout; the others are counted all the same
                failures.append(failure)
        if failures:
            raise failures[0]
        with suppress(BrokenPipeError):
            sys.stdout.flush()

    def _print_first(self) -> None:
        """Take out the first one, but only if it is stored: neither an interrupt of the wait nor a failure loses it."""
        message_id = self._in_flight[0].message_id()
        self._in_flight.popleft()
        self.stored += 1
        if self._lost_reader:
            return
        try:
            _print_id(message_id, self._output)
        except BrokenPipeError:
            self._lost_reader = True


def _print_id(message_id: MessageId, output: str) -> None:
    if output == "jsonl":
        print_jsonl([{"messageId": str(message_id)}])
    else:
        sys.stdout.write(f"{message_id}\n")
    if sys.stdin.isatty():
        sys.stdout.flush()


def _content(path: str, *, in_parts: bool) -> bytes | FileValue:
    from broker_core.client import FileValue

    file = Path(path)
    try:
        if in_parts and file.is_file() and file.stat().st_size > _WHOLE_BYTES_MAX:
            return FileValue(path)
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f'"{path}" cannot be read: {error.strerror}') from error


def _from_json_lines(common: Outgoing, schema: LineSchema | None) -> Iterator[Outgoing]:
    from broker_core.cli.message_forms import from_json

    for number, line in enumerate(stdin_lines(), 1):
        message = from_json(line, number, None if schema is None else schema.encoder(f"line {number}"))
        yield message._replace(deliver_at_ms=common.deliver_at_ms, deliver_after_s=common.deliver_after_s)


def _from_line(line: bytes | FileValue, common: Outgoing, split_key: str | None) -> Outgoing:
    if split_key is None or not isinstance(line, bytes):
        return common._replace(value=line)
    key, found, value = line.partition(_as_given(split_key))
    if not found:
        raise UsageError(
            f'"{line[:80].decode("utf-8", "replace")}" has no key: the separator "{split_key}" is not in it',
            hint="check --split-key",
        )
    return common._replace(key=_text_if_possible(key), value=value)


def _as_given(argument: str) -> bytes:
    """The bytes on the command line, also where they are no text."""
    return argument.encode("utf-8", "surrogateescape")


def _text_if_possible(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _properties(assignments: tuple[str, ...]) -> dict[str, str]:
    properties = {}
    for assignment in assignments:
        name, found, value = assignment.partition("=")
        if not found or not name:
            raise UsageError(f'--property "{assignment}" is not NAME=VALUE', hint="write -p colour=red")
        if name in properties:
            raise UsageError(f'--property "{name}" is given twice', hint="give each name once")
        properties[name] = value
    return properties


def _time_ms(option: str, text: str | None) -> int:
    """Milliseconds since the epoch, negative before 1970."""
    if text is None:
        return 0
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= _TIME_DIGITS_MAX:
        return int(text)
    if (time_ms := time_if_one(option, text)) is None:
        raise UsageError(
            f'{option} "{text}" is not a time', hint=f"write milliseconds since the epoch, or {TIME_FORMS}"
        )
    return time_ms


def _due_ms(text: str | None) -> int:
    """When to deliver; 0 is at once."""
    time_ms = _time_ms("--deliver-at", text)
    if time_ms < 0:
        raise UsageError(f'--deliver-at "{text}" is before 1970', hint="leave it out to deliver at once")
    return time_ms


# -- stdin


NAP_S: Final = 0.25
_READ_BYTES: Final = 1 << 16


def stdin_lines() -> Iterator[bytes]:
    """Each line without its newline, as soon as it is there; the last one needs none."""
    begun: list[bytes] = []
    for chunk in iter(_next_chunk, b""):
        first, *more = chunk.split(b"\n")
        begun.append(first)
        if more:
            yield b"".join(begun)
            yield from more[:-1]
            begun = [more[-1]]
    last = b"".join(begun)
    if last:
        yield last


def _next_chunk() -> bytes:
    """Bytes that can be read now, after waiting for them if need be; none at the end."""
    stdin = sys.stdin.buffer
    assert isinstance(stdin, io.BufferedIOBase)
    try:
        descriptor = stdin.fileno()
    except io.UnsupportedOperation:
        return stdin.read1(_READ_BYTES)
    while not select.select([descriptor], [], [], NAP_S)[0]:
        pass
    return stdin.read1(_READ_BYTES)
