# SPDX-License-Identifier: Apache-2.0
"""``pulsarish consume``: messages of a topic on stdout.

Without a subscription it reads and leaves no trace on the broker. With ``-s`` it is a consumer like any other: a
message is acknowledged after it was written to stdout, so what was not printed comes again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from broker_core.base.errors import OperationTimeoutError, TopicNotFoundError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.suggest import meant_topic
from broker_core.cli.interrupts import ends_in_order
from broker_core.cli.message_forms import message_format_option, message_printer, raw_option
from broker_core.cli.output import counted, human_bytes, on_terminal, progress, progress_option, say
from broker_core.cli.parameter_types import TIME_FORMS, Seconds, WholeNumber, time_if_one
from broker_core.cli.target import Target, target_options

if TYPE_CHECKING:
    from broker_core.base.positions import MessageId
    from broker_core.client import Client, Message
    from broker_core.client.settings.config import InitialPosition, SubscriptionType
    from broker_core.client.settings.options import ConsumerOptions

_TOGETHER_MAX: Final = 1000
"""Messages that are printed before they are acknowledged, and come twice if the command is killed in between."""

_TOGETHER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of values after which they are printed too: as large as they may be, few are in memory."""

_LOOK_S: Final = 1.0
"""How soon --follow notices that there will be no more."""


@click.command()
@click.argument("topic")
@click.option("-s", "--subscription", metavar="NAME", help="Consume and acknowledge under this subscription.")
@click.option(
    "-t",
    "--type",
    "kind",
    type=click.Choice(["exclusive", "failover", "shared", "key_shared"]),
    default="exclusive",
    show_default=True,
    help="Type of the subscription.",
)
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help=f"Where to begin if there is no subscription yet: earliest, latest, a message id, or a time: {TIME_FORMS}.",
)
@click.option("--topics-pattern", is_flag=True, help="TOPIC is [tenant/namespace/]expression: all topics that match.")
@click.option(
    "--ack-timeout",
    "ack_timeout_s",
    type=Seconds(1),
    metavar="SECONDS",
    help="What is not written to stdout this long after it was received comes again.",
)
@click.option(
    "--dead-letter",
    "dead_letter_after",
    type=WholeNumber(1),
    metavar="N",
    help="After N redeliveries a message goes to TOPIC-SUBSCRIPTION-DLQ (--type shared or key_shared).",
)
@click.option("--dead-letter-topic", metavar="TOPIC", help="Where it goes instead; with --dead-letter.")
@click.option("--name", metavar="NAME", help="Name of the consumer. [default: one that is made up]")
@click.option(
    "--priority",
    type=WholeNumber(0),
    metavar="N",
    help="0 is served first; others when nobody above can take more (shared) or is there (failover).",
)
@click.option(
    "--key-range",
    "key_ranges",
    multiple=True,
    metavar="FIRST-LAST",
    help="Take these slots of 0-65535 for itself (key_shared), or leave out the others (exclusive); may be repeated.",
)
@click.option("-n", "--count", type=WholeNumber(1), help="Stop after this many messages.")
@click.option(
    "--follow/--exit",
    default=True,
    show_default=True,
    help="Wait for more at the end of the topic, unless it was terminated, or stop. On --type shared and key_shared "
    "--exit stops too when nothing came for --timeout: the rest is delayed, or with other consumers.",
)
@message_format_option
@raw_option
@progress_option
@target_options
def consume(
    target: Target,
    topic: str,
    subscription: str | None,
    kind: SubscriptionType,
    start: str,
    topics_pattern: bool,
    ack_timeout_s: float | None,
    dead_letter_after: int | None,
    dead_letter_topic: str | None,
    name: str | None,
    priority: int | None,
    key_ranges: tuple[str, ...],
    count: int | None,
    follow: bool,
    output: str | None,
    is_raw: bool,
    shows_progress: bool | None,
) -> None:
    """Print the messages of TOPIC.

    \b
    pulsarish consume hello --exit
    pulsarish consume orders -s billing -n 10 -o raw
    pulsarish consume 'orders-.*' --topics-pattern -s billing --type shared --dead-letter 3
    pulsarish consume orders -s billing --type key_shared --key-range 0-32767
    """
    if subscription is not None and sys.__stdout__ is None:
        raise UsageError(
            "stdout is closed, and nobody would see what is acknowledged", hint="write > /dev/null to drop messages"
        )
    choices = _SubscriptionChoices(
        topics_pattern, ack_timeout_s, dead_letter_after, dead_letter_topic, name, priority, key_ranges
    )
    with ends_in_order(), target.client() as client:
        show = message_printer(output, None if is_raw else client)
        # No more than was asked for: what a consumer gives back unseen counts as redelivered.
        prefetch = min(count or _TOGETHER_MAX, _TOGETHER_MAX)
        in_files = output == "raw" and not on_terminal()
        stream = _open(client, topic, subscription, kind, start, choices, prefetch, in_files=in_files)
        try:
            arrivals = _arrivals(stream, count, follow, target.timeout_s)
            written = _Written(stream.coming_bytes)
            with progress(written.moved, shows_progress):
                printed = _print_all(stream, arrivals, written.counting(show))
        finally:
            stream.close()
    if on_terminal():
        say(counted(printed, "message", "messages"))


class _Written:
    """Messages that were printed so far, and their values."""

    def __init__(self, coming_bytes: Callable[[], int]) -> None:
        """``coming_bytes``: what is here of messages that are not complete."""
        self._messages = 0
        self._size_bytes = 0
        self._moved_bytes = 0
        self._coming_bytes = coming_bytes

    def moved(self) -> tuple[int, int]:
        """Messages, and bytes of values; a large one counts by its chunks, before it is printed."""
        self._moved_bytes = max(self._moved_bytes, self._size_bytes + self._coming_bytes())
        return self._messages, self._moved_bytes

    def counting(self, show: Callable[[Message], None]) -> Callable[[Message], None]:
        """``show``, counted."""

        def counted_show(message: Message) -> None:
            show(message)
            self._messages += 1
            self._size_bytes += len(message.value or b"" if message.file is None else message.file)

        return counted_show


class _Stream(NamedTuple):
    """Messages of a consumer or of a reader. ``close`` belongs to the caller.

    ``has_ended``: nothing will ever come again. ``is_shared``: what is there may go to others, or be held back.
    """

    take: Callable[[float | None], Message]
    has_more: Callable[[], bool]
    has_ended: Callable[[], bool]
    acknowledge: Callable[[Message], object]
    close: Callable[[], None]
    coming_bytes: Callable[[], int]
    is_shared: bool = False


_ONLY_ON: Final[dict[str, tuple[tuple[SubscriptionType, ...], str]]] = {
    "--dead-letter": (("shared", "key_shared"), "redeliveries are not counted"),
    "--priority": (("shared", "failover"), "nobody goes by it"),
    "--key-range": (("key_shared", "exclusive"), "nobody looks at keys"),
}
"""Option -> the types of subscriptions on which it means something, and why it means nothing elsewhere."""


class _SubscriptionChoices(NamedTuple):
    """Options of the command line that only a subscription can have, as the user gave them."""

    topics_pattern: bool
    ack_timeout_s: float | None
    dead_letter_after: int | None
    dead_letter_topic: str | None
    name: str | None
    priority: int | None
    key_ranges: tuple[str, ...]

    def check(self, subscription: str | None, kind: SubscriptionType) -> None:
        """UsageError if it does not fit the rest of the command line."""
        for option, text in (("--name", self.name), ("--dead-letter-topic", self.dead_letter_topic)):
            if text == "":
                raise UsageError(f"{option} is empty", hint="write a name, or leave it out for the default one")
        if self.dead_letter_topic is not None and self.dead_letter_after is None:
            raise UsageError("--dead-letter-topic is for --dead-letter", hint="say after how many redeliveries")
        asked = {
            "--topics-pattern": self.topics_pattern,
            "--ack-timeout": self.ack_timeout_s is not None,
            "--dead-letter": self.dead_letter_after is not None,
            "--name": self.name is not None,
            "--priority": self.priority is not None,
            "--key-range": bool(self.key_ranges),
        }
        needy = next((option for option, is_asked in asked.items() if is_asked), None)
        if needy is not None and subscription is None:
            raise UsageError(f"{needy} needs a subscription", hint="name one with -s")
        for option, (kinds, why) in _ONLY_ON.items():
            if asked[option] and kind not in kinds:
                hint = f"use --type {' or '.join(kinds)}"
                raise UsageError(f"{option} has no effect on --type {kind}, where {why}", hint=hint)

    def options(self) -> ConsumerOptions:
        """As the client takes it."""
        from broker_core.client import DeadLetterPolicy, KeySharedPolicy

        options: ConsumerOptions = {"consumer_name": self.name, "priority_level": self.priority or 0}
        if self.key_ranges:
            ranges = tuple(map(_slots, self.key_ranges))
            options["key_shared_policy"] = KeySharedPolicy(mode="sticky", sticky_ranges=ranges)
        if self.ack_timeout_s is not None:
            options["ack_timeout_s"] = self.ack_timeout_s
        if self.dead_letter_after is not None:
            options["dead_letter_policy"] = DeadLetterPolicy(
                max_redeliver_count=self.dead_letter_after, dead_letter_topic=self.dead_letter_topic
            )
        return options


def _slots(text: str) -> tuple[int, int]:
    from broker_core.client.settings.policies import SLOT_MAX

    first, found, last = text.partition("-")
    if not (found and first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise UsageError(f"--key-range {text} is no range", hint="write FIRST-LAST, such as 0-32767")
    if not int(first) <= int(last) <= SLOT_MAX:
        what = f"--key-range {text} is no range of slots"
        raise UsageError(what, hint=f"write FIRST-LAST with FIRST not above LAST, both from 0 to {SLOT_MAX}")
    return int(first), int(last)


def _open(
    client: Client,
    topic: str,
    subscription: str | None,
    kind: SubscriptionType,
    start: str,
    choices: _SubscriptionChoices,
    prefetch: int,
    *,
    in_files: bool,
) -> _Stream:
    from broker_core.client.settings.config import SHARED_TYPES

    word: InitialPosition | None = start if start in ("earliest", "latest") else None  # type: ignore[assignment] # checked
    time_ms = None if word else time_if_one("--from", start)
    if subscription is None and kind != "exclusive":
        raise UsageError(f"--type {kind} needs a subscription", hint="name one with -s")
    if subscription is not None and word is None and (time_ms is None or choices.topics_pattern):
        what = "a message id" if time_ms is None else "a time on topics of a pattern"
        raise UsageError(f"a subscription cannot begin at {what}", hint="use --from earliest or latest")
    choices.check(subscription, kind)
    at = word or ("earliest" if time_ms is not None else _message_id(start))
    if not choices.topics_pattern:
        _require_topic(client, topic)
    if subscription is not None:
        subscribe = client.subscribe_pattern if choices.topics_pattern else client.subscribe
        options = choices.options()
        options["type"], options["initial_position"] = kind, word or "earliest"
        options["receiver_queue_size"] = prefetch
        options["auto_scaled_receiver_queue_size_enabled"] = True
        options["large_values_in_files"] = in_files
        is_moved = time_ms is not None and not _has_subscription(client, topic, subscription)
        consumer = subscribe(topic, subscription, **options)
        if time_ms is not None and is_moved:
            consumer.seek(max(time_ms, 0))
        return _Stream(
            consumer.receive,
            consumer.has_message_available,
            # Another topic may come to match a pattern.
            lambda: consumer.has_reached_end_of_topic and not choices.topics_pattern,
            consumer.acknowledge,
            consumer.close,
            lambda: consumer.stats().buffered_chunk_bytes,
            is_shared=kind in SHARED_TYPES,
        )
    reader = client.create_reader(
        topic,
        at,
        inclusive=word is None,
        receiver_queue_size=prefetch,
        auto_scaled_receiver_queue_size_enabled=True,
        large_values_in_files=in_files,
    )
    if time_ms is not None:
        reader.seek(max(time_ms, 0))
    return _Stream(
        reader.read_next,
        reader.has_message_available,
        lambda: reader.has_reached_end_of_topic,
        lambda message: None,
        reader.close,
        lambda: reader.stats().buffered_chunk_bytes,
    )


def _has_subscription(client: Client, topic: str, subscription: str) -> bool:
    parts = client.partition_names(topic)
    return any(client.has_subscription(part, subscription, unmade_ok=True) for part in parts)


def _require_topic(client: Client, topic: str) -> None:
    """Looking must not create: a misspelt name is an error, with the name that was probably meant."""
    name = TopicName.parse(topic)
    if not name.persistent:
        return
    known = {TopicName.parse(each) for each in client.topics_of(str(name.namespace_name))}
    known |= {each.base for each in known}
    if name not in known:
        create = f"create it with: pulsarish topic create {topic}"
        raise TopicNotFoundError(
            f'topic "{name}" does not exist: the broker has no such topic',
            hint=meant_topic(name, known) or create,
        )


def _message_id(text: str) -> MessageId:
    from broker_core.base.positions import MessageId

    try:
        return MessageId.parse(text)
    except ValueError as error:
        raise UsageError(
            f"--from {error}", hint="write earliest, latest, a time like -1h, or a message id as produce prints it"
        ) from error


def _arrivals(stream: _Stream, count: int | None, follow: bool, timeout_s: float) -> Iterator[list[Message]]:
    """Messages as they come, together those that are here already; up to ``count`` of them.

    Without ``follow`` it ends at the end of what is published.
    """
    left = sys.maxsize if count is None else count
    while left and (follow or stream.has_more()):
        first = _followed(stream) if follow else _available(stream, timeout_s)
        if first is None:
            return
        arrived, size = [first], _size_in_memory(first)
        with contextlib.suppress(OperationTimeoutError):
            while len(arrived) < min(left, _TOGETHER_MAX) and size < _TOGETHER_BYTES_MAX:
                arrived.append(stream.take(0))
                size += _size_in_memory(arrived[-1])
        yield arrived
        left -= len(arrived)


def _size_in_memory(message: Message) -> int:
    return len(message.value or b"") if message.file is None else 0


def _followed(stream: _Stream) -> Message | None:
    """The next message, whenever it comes; None if there will be none."""
    while True:
        try:
            return stream.take(_LOOK_S)
        except OperationTimeoutError:
            if stream.has_ended():
                say("the topic was terminated, and this is its end")
                return None


def _available(stream: _Stream, timeout_s: float) -> Message | None:
    """The next of the messages that are published; None if nobody has any for us."""
    try:
        return stream.take(timeout_s)
    except OperationTimeoutError:
        if stream.has_more():  # else others were quicker
            if coming_bytes := stream.coming_bytes():
                raise OperationTimeoutError(
                    f"nothing came for {timeout_s:g} s of a message in chunks of which {human_bytes(coming_bytes)} are "
                    "here: nothing of it is printed",
                    hint="its producer may have died; with --follow it is waited for",
                ) from None
            if not stream.is_shared:
                raise
            say(f"nothing came for {timeout_s:g} s: what is left is delayed, or with other consumers")
        return None


def _print_all(stream: _Stream, arrivals: Iterator[list[Message]], show: Callable[[Message], None]) -> int:
    """Print messages, then acknowledge them; returns how many. Ctrl-C, or SIGTERM, is the usual way to end it."""
    printed = 0
    written: list[Message] = []
    try:
        for messages in arrivals:
            written = []
            for message in messages:
                show(message)
            sys.stdout.flush()
            written = messages
            printed += len(messages)
            _acknowledge(stream, messages)
    except KeyboardInterrupt:
        _acknowledge(stream, written)  # perhaps not for the first time, which changes nothing
        say("")
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            say(f"{counted(printed, 'message', 'messages')} printed before; a subscription gives the next ones again")
        raise
    return printed


def _acknowledge(stream: _Stream, messages: list[Message]) -> None:
    for message in messages:
        stream.acknowledge(message)
