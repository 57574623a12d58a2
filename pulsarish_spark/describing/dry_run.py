# SPDX-License-Identifier: Apache-2.0
"""Asks a broker what a read would do, by the same rules as the read, and reads nothing but samples.

Invariants: nothing is made on the broker and nothing is acknowledged. Where the subscription of a stream stands is
asked by being its consumer for a moment; where it has one, that is not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker_core.base.clock import SystemClock
from broker_core.base.errors import (
    ConfigError,
    ConsumerBusyError,
    PartitionUnmadeError,
    SubscriptionNotFoundError,
)
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.describing.columns import columns_found, schemas_found
from pulsarish_spark.describing.description import BrokerFound, Description, PartitionRange, SubscriptionFound
from pulsarish_spark.describing.spark_side import spark_settings, workers_python
from pulsarish_spark.losses.loss import LossPolicy
from pulsarish_spark.options import ReadOptions, Side, option_texts, read_options
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.topics import TopicPartition
from pulsarish_spark.positions.batch_plan import whole_ranges
from pulsarish_spark.positions.bounds import FirstStart, StreamEnd
from pulsarish_spark.positions.cursors import Cursors
from pulsarish_spark.positions.resuming import ResumePoint
from pulsarish_spark.rows.kept_rows import ALL_ROWS
from pulsarish_spark.viewing.broker_view import HOW_TO_GET_INDEXES, BrokerView
from pulsarish_spark.viewing.counting import NamedRange
from pulsarish_spark.viewing.expiry_policy import ExpiryPolicies
from pulsarish_spark.viewing.held_partitions import HeldPartitions
from pulsarish_spark.viewing.layout import LEFT_OUT, Layout, advice_on_missing, discover

if TYPE_CHECKING:
    from broker_core.client import Client


class _Found(NamedTuple):
    """The range of one partition that would be read. None: not known."""

    key: TopicPartition
    name: str
    start: Offset | None
    end: Offset
    stands: Offset | None = None


class _Read(NamedTuple):
    """The ranges of all partitions that would be read, with notes."""

    found: list[_Found]
    subscription: SubscriptionFound | None
    notes: list[str]


def describe(topic: str | None = None, /, *, stream: bool = False, **options: object) -> Description:
    """Describe the read of ``spark.read`` (``stream``: ``spark.readStream``) with these options.

        print(pulsarish_spark.describe("flights", startingOffsets="earliest"))
        pulsarish_spark.describe("flights", stream=True, subscriptionName="etl").as_dict()

    Options as for ``read_arrow``. Nothing is made on the broker and nothing is acknowledged; to learn where the
    subscription of a stream stands, this is its consumer for a moment. A stream is described as without a checkpoint.
    Where no address is given, the embedded broker is started, as by the read.

    Raises what the read would raise before its first row: ConfigError for options that are wrong, TopicNotFoundError,
    DataLossError, and what the client raises where the broker does not answer.
    """
    checked = read_options(option_texts(topic, options), Side.STREAM_READ if stream else Side.BATCH_READ, os.environ)
    with connected(checked.address) as client:
        layout = discover(checked.selection, client, missing_ok=stream)
        view = BrokerView(client)
        of_stream = _queue if checked.queue is not None else _stream
        read = of_stream(client, checked, layout) if stream else _batch(view, checked, layout)
        # Not the ends that are read to: what a user names, and the end of an emptied partition, tells no index.
        broker = broker_found(client, [*view.latest_of(layout.names.values()).values()])
        partitions = _measured(view, read.found)
        columns = columns_found(checked, client)
        schemas = schemas_found(client, (key.topic for key in layout.names))
        missing = [_awaited(topic, advice_on_missing(topic, client)) for topic in layout.missing]
    held = HeldPartitions(checked.address, SystemClock()).of_all(layout.names.values())
    notes = [*missing, *_notes(checked, layout, broker), *read.notes, *map(str, held.values())]
    if schemas and not checked.values.is_typed:
        notes.append('values are bytes; .option("valueFormat", "schema") makes columns of them')
    return Description(
        *(broker, tuple(partitions), read.subscription, workers_python(os.environ), spark_settings()),
        *(tuple(notes), columns, schemas),
    )


def broker_found(client: Client, ends: Sequence[Offset]) -> BrokerFound:
    """The broker of ``client``, which shows ``ends`` behind the last messages of partitions."""
    product = client.server_version()
    told = [end.message_index >= 0 for end in ends if end.position.entry > 0]
    is_ours = product.startswith("Pulsarish")
    return BrokerFound(client.config.service_url, product, is_ours, all(told) if told else is_ours or None)


def _batch(view: BrokerView, options: ReadOptions, layout: Layout) -> _Read:
    ranges = whole_ranges(view, options, layout)
    found = [_Found(whole.key, whole.name, whole.start, whole.end or view.latest(whole.name)) for whole, _ in ranges]
    return _Read(found, None, [])


def _queue(client: Client, options: ReadOptions, layout: Layout) -> _Read:
    """A query that shares its subscription is given what comes: it has no start, and its backlog is not told."""
    ends = BrokerView(client).latest_of(layout.names.values())
    exists = any(client.has_subscription(name, options.subscription, unmade_ok=True) for name in layout.names.values())
    found = [_Found(key, name, None, ends[name]) for key, name in layout.names.items()]
    note = "the broker says which messages come, so start and rows are not known"
    return _Read(found, SubscriptionFound(options.subscription, exists), [note])


def _stream(client: Client, options: ReadOptions, layout: Layout) -> _Read:
    for bound in (options.starting, options.ending):
        bound.check_named(layout.names, lambda topics: topics & {*layout.missing})
    view = BrokerView(client)
    # With a name of its own no subscription is there, so none is looked for.
    cursors = Cursors(client, options.subscription, SystemClock())
    policy = LossPolicy(options.on_loss == "fail", compacted=options.compacted)
    first_start = FirstStart(view, cursors, options, policy)
    stands, busy = _stands(view, layout.names, options.subscription)
    notes = []
    try:
        starts = first_start.find({key: name for key, name in layout.names.items() if key not in busy})
        ends = view.ends_of(layout.names.values())
        found = [_Found(key, name, starts.get(key), ends[name], stands.get(key)) for key, name in layout.names.items()]
    finally:
        cursors.close()
    try:
        first_start.check()
    except ConfigError as error:
        notes.append(f"the query would be refused: {error}")
    if busy:
        notes.append("a consumer is connected to the subscription, so where it stands is not known")
    if options.compacted:
        notes.append("places and rows are those of the log; what is compacted has fewer")
    notes += _expiry_notes(client, options, found)
    subscription = SubscriptionFound(options.subscription or None, bool(stands or busy), bool(busy))
    return _Read(_ending(view, options, found), subscription, notes)


def _expiry_notes(client: Client, options: ReadOptions, found: list[_Found]) -> list[str]:
    """Notes on when the broker passes over unread entries, of partitions where it does and that is known."""
    known = ExpiryPolicies(options.address).of_all({each.key.topic for each in found})
    now_ms = SystemClock().now_ms()
    notes = []
    for each in found:
        expiry = known[each.key.topic]
        if each.start is None or expiry is None or expiry.limit_s is None:
            continue
        oldest = client.first_entry_at(each.name, each.start.position, unmade_ok=True)
        if oldest is not None and (left_s := expiry.left_s(oldest, now_ms)) is not None:
            notes.append(f"{expiry.why} passes the start of {each.key} in about {left_s:.0f} s")
    return notes


def _stands(
    view: BrokerView, names: Mapping[TopicPartition, str], subscription: str
) -> tuple[dict[TopicPartition, Offset], set[TopicPartition]]:
    """The place of a subscription on each partition that has it, and the partitions where it is in use."""
    stands: dict[TopicPartition, Offset] = {}
    busy: set[TopicPartition] = set()
    for key, name in names.items() if subscription else ():
        try:
            stands[key] = view.unread_of(name, subscription)
        except ConsumerBusyError:
            busy.add(key)
        except (SubscriptionNotFoundError, PartitionUnmadeError):
            continue
    return stands, busy


def _ending(view: BrokerView, options: ReadOptions, found: list[_Found]) -> list[_Found]:
    """``found`` as far as the stream goes."""
    known = [(each, each.start) for each in found if each.start is not None]
    places = {each.key: ResumePoint(each.key, each.name, start, start) for each, start in known}
    end = StreamEnd(view, options)
    cut = end.cut(places, {each.key: each.end for each, _ in known})
    end.check_order(places)
    return [each._replace(end=cut.get(each.key, each.end)) for each in found]


def _measured(view: BrokerView, found: list[_Found]) -> list[PartitionRange]:
    """Rows and bytes of each partition. Where no indexes tell, entries are counted, and sampled beyond a budget."""
    starts = {
        each.key: view.with_index(each.name, each.start) if each.start.key < each.end.key else each.start
        for each in found
        if each.start is not None
    }
    full = [each for each in found if each.key in starts and starts[each.key].key < each.end.key]
    ranges = {each.key: NamedRange(each.name, starts[each.key].position, each.end.position) for each in full}
    counted = [each.key for each in full if min(starts[each.key].message_index, each.end.message_index) < 0]
    profiles = dict(zip(counted, view.counts.profiles([ranges[key] for key in counted], exact=True), strict=True))
    rows = {key: profile.messages for key, profile in profiles.items()}
    stored = [ranges[each.key]._replace(end=each.end.behind_entry) for each in full]
    sizes = view.counts.per_entry(stored, "bytes")
    bytes_ = {
        each.key: round(view.counts.entries(range_).entries * size)
        for each, range_, size in zip(full, stored, sizes, strict=True)
    }
    return [_partition(each, starts.get(each.key), rows.get(each.key), bytes_.get(each.key, 0)) for each in found]


def _partition(each: _Found, start: Offset | None, counted: int | None, bytes_: int) -> PartitionRange:
    """``counted``: rows of the whole entries of the range, where no indexes tell."""
    number = each.key.partition
    stands = None if each.stands is None else each.stands.text(number)
    end = each.end.text(number)
    if start is None:
        return PartitionRange(each.key.topic, number, None, end, None, False, None, stands)
    if start.key >= each.end.key:
        rows, is_exact = 0, True
    elif counted is None:
        rows, is_exact = max(each.end.message_index - start.message_index, 0), True
    else:
        rows, is_exact = max(counted - start.batch + each.end.batch, 0), False
    return PartitionRange(each.key.topic, number, start.text(number), end, rows, is_exact, bytes_, stands)


def _awaited(topic: str, advice: str) -> str:
    return f"the stream waits for {topic}, which does not exist" + (f"; {advice}" if advice else "")


def _notes(options: ReadOptions, layout: Layout, broker: BrokerFound) -> list[str]:
    notes = [f"{name} is left out: {LEFT_OUT}" for name in layout.left_out]
    if not layout.names and options.selection.pattern:
        notes.append(f"no topic matches {options.selection.pattern}")
    if broker.tells_indexes is False:
        notes.append(f"without message indexes rows are estimated; {HOW_TO_GET_INDEXES}")
    if options.kept != ALL_ROWS:
        notes.append("the options drop rows by key or event time, which the numbers of rows leave out of account")
    return notes
