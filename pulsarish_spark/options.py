# SPDX-License-Identifier: Apache-2.0
"""Every option of the source and the sink, declared once: names, where it applies, how its text is read, an example.

Spark hands option keys over in lower case, so each is found by its lower-case name or alias here and called by its
proper name in errors. Kafka's and pulsar-spark's names are aliases where the meaning is the same. Unknown options,
options of the wrong side and bad values are ConfigErrors of one line. Knows nothing of brokers or of Spark's classes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.hashing import HASHING_SCHEME_DEFAULT, HashingScheme
from broker_core.base.limits import CONNECTION_TIMEOUT_S, OPERATION_TIMEOUT_S
from broker_core.base.names import TopicName, check_subscription_name
from broker_core.base.runtime import ENV_SERVICE_URL, default_data_dir
from broker_core.base.suggest import closest
from pulsarish_spark.connection import Address
from pulsarish_spark.schema import ALL_COLUMNS, HEADERS_COLUMN
from pulsarish_spark.start_spec import OffsetSpec, parse_offset_spec, parse_timestamp_ms, timestamp_text
from pulsarish_spark.topics import Selection, TopicPartition, parse_assign, parse_topic, parse_topics

KeyForm = Literal["auto", "text", "bytes"]
KEY_FORMS: Final[tuple[KeyForm, ...]] = ("auto", "text", "bytes")
HASHING_SCHEMES: Final[dict[str, HashingScheme]] = {
    "JavaStringHash": "java",
    "Murmur3_32Hash": "murmur3",
    "BoostHash": "boost",
    "GoStringHash": "go",
}
"""Pulsar's names of what the client calls otherwise."""
COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")
NO_MATCH_STRATEGIES: Final = ("error", "latest")


class Side(enum.Flag):
    """The four ways to use the format. Options name those that they work in."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ANY = READ | WRITE


_SIDE_NAMES: Final = {
    Side.READ: "the source",
    Side.WRITE: "the sink",
    Side.BATCH_READ: "spark.read",
    Side.STREAM_READ: "spark.readStream",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``parse`` turns its text into a value or raises ValueError saying what is wrong with the text."""

    name: str
    sides: Side
    parse: Callable[[str], Any]
    example: str
    meaning: str
    aliases: tuple[str, ...] = ()
    wrong_side: str = ""


# -- reading of values


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("it takes true or false")
    return word == "true"


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("it takes a whole number from 1 up")
    return int(text)


def _seconds(text: str) -> float:
    return _count(text) / 1000


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"it takes one of {', '.join(words)}")
        return word

    return parse


def _hashing_scheme(text: str) -> HashingScheme:
    by_word = {name.lower(): scheme for name, scheme in HASHING_SCHEMES.items()}
    if (scheme := by_word.get(text.strip().lower())) is None:
        raise ValueError(f"it takes one of {', '.join(HASHING_SCHEMES)}")
    return scheme


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


def _service_url(text: str) -> str:
    url = _text(text)
    if url.startswith("pulsar+ssl://"):
        raise ValueError("TLS is not supported yet")
    if not url.startswith("pulsar://") or url == "pulsar://":
        raise ValueError("it takes the address of a broker that starts with pulsar://")
    return url


def _directory(text: str) -> str:
    """Absolute, because executors have another working directory than the driver."""
    return os.path.abspath(os.path.expanduser(_text(text)))


def _topic(text: str) -> str:
    if "," in text:
        raise ValueError('it takes one topic; read several with .option("topics", "a,b")')
    return parse_topic(text)


def _subscription(text: str) -> str:
    try:
        return check_subscription_name(text.strip())
    except PulsarishError as error:
        raise ValueError(str(error)) from error


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in ALL_COLUMNS:
            raise ValueError(f"there is no column {name}; there are {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise ValueError("it takes at least one column, and each once")
    return names


# -- the table

_NO_END: Final = "a stream has no end; remove it, or read once with spark.read"
_NO_TRIGGER: Final = "a batch read has no triggers; remove it"

OPTIONS: Final = (
    Option(
        "service.url",
        Side.ANY,
        _service_url,
        "pulsar://host:6650",
        "Address of the broker; where nobody answers it is an error after "
        "operationTimeoutMs. Without it: $PULSARISH_SERVICE_URL, "
        "else the embedded broker of data.dir.",
        ("serviceUrl", "service_url"),
    ),
    Option(
        "data.dir",
        Side.ANY,
        _directory,
        "/var/lib/pulsarish",
        "Directory of the embedded broker. Default $PULSARISH_DATA_DIR, else ~/.local/share/pulsarish.",
        ("dataDir", "data_dir"),
    ),
    Option(
        "operationTimeoutMs",
        Side.ANY,
        _seconds,
        "120000",
        "How long to try again while brokers do not answer, or are not ready, before the query or the task fails. "
        f"Default {OPERATION_TIMEOUT_S * 1000:.0f}: an Apache Pulsar cluster that loses a broker needs less.",
        ("pulsar.client.operationTimeoutMs",),
    ),
    Option(
        "connectionTimeoutMs",
        Side.ANY,
        _seconds,
        "5000",
        f"How long one attempt to connect to a broker may take. Default {CONNECTION_TIMEOUT_S * 1000:.0f}.",
        ("pulsar.client.connectionTimeoutMs",),
    ),
    Option(
        "topic",
        Side.ANY,
        _topic,
        "flights",
        "The topic to read or write. load(...) and save(...) take it too.",
        ("path",),
    ),
    Option("topics", Side.READ, parse_topics, "flights,airlines", "Topics to read, comma separated.", ("subscribe",)),
    Option("assign", Side.READ, parse_assign, '{"flights":[0,2]}', "Topics with the partitions to read."),
    Option(
        "startingOffsets",
        Side.READ,
        parse_offset_spec,
        '{"flights":{"0":"5:12","1":1000,"2":"earliest"}}',
        "Where a new query starts: earliest, latest, or a map of words, ids ledger:entry[:partition[:batch]] and "
        "message indexes (-1 latest, -2 earliest). Default latest in a stream, earliest in a batch, also for what a "
        "map does not name.",
    ),
    Option(
        "endingOffsets",
        Side.BATCH_READ,
        parse_offset_spec,
        '{"flights":{"0":"5:12"}}',
        "Where a batch read ends (exclusive), same forms. Default latest, also for what a map does not name; found "
        "when the data is read.",
        wrong_side=_NO_END,
    ),
    Option(
        "startingTimestamp",
        Side.READ,
        parse_timestamp_ms,
        "1767225600000",
        "Start at the first message published at or after this time (ms or ISO 8601). Beats startingOffsets.",
        ("startingTime",),
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        Side.READ,
        _one_of(*NO_MATCH_STRATEGIES),
        "latest",
        "What to do in a partition without a message so young: error (default), or latest.",
    ),
    Option(
        "endingTimestamp",
        Side.BATCH_READ,
        parse_timestamp_ms,
        "1767225600000",
        "End before the first message published at or after this time. Beats endingOffsets.",
        ("endingTime",),
        wrong_side=_NO_END,
    ),
    Option(
        "maxOffsetsPerTrigger",
        Side.STREAM_READ,
        _count,
        "500000",
        "Messages of one micro-batch at most, to within one entry, shared out by backlog; never less than one entry of "
        "each partition. A broker without message indexes is read twice for that, up to 64 MiB or 20,000 entries a "
        "trigger; beyond these only larger entries than all of those seen can make a batch larger.",
        wrong_side=_NO_TRIGGER,
    ),
    Option("minPartitions", Side.READ, _count, "8", "At least about so many tasks: long ranges are split."),
    Option(
        "inputPartitions",
        Side.READ,
        _count,
        "4",
        "Exactly so many tasks, if there are as many topic partitions: partition p is read by task p mod n.",
    ),
    Option(
        "maxRecordsPerPartition",
        Side.READ,
        _count,
        "100000",
        "Messages of one task at most, to within one entry. Without message indexes: within the first 64 MiB or 20,000 "
        "entries that are read; behind them to within a factor of two where batches of all sizes are mixed evenly.",
    ),
    Option(
        "failOnDataLoss",
        Side.READ,
        _flag,
        "false",
        "Fail (default), or warn and go on, when messages that should be read are gone, or may be: the checkpoint, the "
        "subscription and the broker disagree.",
    ),
    Option(
        "includeHeaders",
        Side.ANY,
        _flag,
        "true",
        "Source: add the column headers. Sink: as in Kafka's; changes nothing.",
    ),
    Option("columns", Side.READ, _columns, "key,value,timestamp", "Read only these columns, in this order."),
    Option(
        "subscriptionName",
        Side.STREAM_READ,
        _subscription,
        "my-query",
        "Durable subscription that follows the checkpoint; one for each query. On one that is there a new query begins "
        "where it stands. Default: a new one of its own, called pulsarish-spark-..., which the checkpoint remembers.",
        ("predefinedSubscription", "kafka.group.id"),
        wrong_side="a batch read leaves no trace on the broker; remove it",
    ),
    Option(
        "skipUnread",
        Side.STREAM_READ,
        _flag,
        "true",
        "Whether startingOffsets or startingTimestamp may pass over what the subscription of a new query has not "
        "acknowledged, and acknowledge it unread. Default false: an error.",
        wrong_side="a batch read acknowledges nothing; remove it",
    ),
    Option(
        "hashingScheme",
        Side.WRITE,
        _hashing_scheme,
        "BoostHash",
        "How the key chooses the partition. Default JavaStringHash, as in the Java client; the default of the C++ and "
        "Python clients is BoostHash (of Boost 1.82 or newer, in Python from 3.6 on), that of the Go client "
        "GoStringHash (Go calls it JavaStringHash); those of Java, Go and C++ also have Murmur3_32Hash.",
    ),
    Option(
        "keyForm",
        Side.WRITE,
        _one_of(*KEY_FORMS),
        "bytes",
        "How keys go out: text, or bytes (base64-encoded on their way, with a flag). Default auto: as the column "
        "key_is_bytes says, else as text where they are UTF-8. The forms of one key may go to different partitions.",
    ),
    Option("compression", Side.WRITE, _one_of(*COMPRESSIONS), "lz4", "Codec of the entries written. Default none."),
    Option(
        "batchingMaxMessages",
        Side.WRITE,
        _count,
        "1000",
        "Messages of one entry at most.",
    ),
    Option("batchingMaxBytes", Side.WRITE, _count, "131072", "Payload bytes of one entry at most, before compression."),
)

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark passes these of its own to a streaming sink."""

_SHOWN_MAX: Final = 200
"""Characters of a wrong value that an error repeats."""

_BY_KEY: Final = {key.lower(): option for option in OPTIONS for key in (option.name, *option.aliases)}
_SPELLED: Final = {key.lower(): key for option in OPTIONS for key in (option.name, *option.aliases)}
_LIKENESS_MIN: Final = 0.7
_SELECTORS: Final = ("topic", "topics", "assign")

_NAME_THEM: Final = 'is not supported; name the topics: .option("topics", "a,b")'
_NAME_IT: Final = 'is not supported; name the subscription: .option("subscriptionName", "my-query")'
_NO_MINIMUM: Final = "is not supported: a batch takes what there is; a trigger interval makes fewer and larger batches"
_BY_WORD_OR_ID: Final = "is not supported: startingTimestamp and endingTimestamp hold for all partitions alike"
_NOT_NEEDED: Final = "is not needed here; remove it"
_OF_A_TABLE: Final = (
    "came from CREATE TABLE, which does not keep options; a view does: "
    "CREATE TEMPORARY VIEW flights USING pulsarish OPTIONS (topic 'flights')"
)
_OF_A_QUERY: Final = "is Spark's own, of a query that is written as a stream; give it after writeStream"

_REFUSED: Final = {
    "kafka.bootstrap.servers": "names a Kafka cluster and this format speaks Pulsar; "
    'give .option("service.url", "pulsar://host:6650"), or no address at all to use the embedded broker',
    "subscribePattern": _NAME_THEM,
    "topicsPattern": _NAME_THEM,
    "paths": 'was given by load([...]); name the topics: .option("topics", "a,b").load()',
    "owner": _OF_A_TABLE,
    "provider": _OF_A_TABLE,
    "checkpointLocation": _OF_A_QUERY,
    "queryName": _OF_A_QUERY,
    "startingOffsetsByTimestamp": _BY_WORD_OR_ID,
    "endingOffsetsByTimestamp": _BY_WORD_OR_ID,
    "minOffsetsPerTrigger": _NO_MINIMUM,
    "maxTriggerDelay": _NO_MINIMUM,
    "maxBytesPerTrigger": 'is not supported; limit messages: .option("maxOffsetsPerTrigger", "500000")',
    "groupIdPrefix": _NAME_IT,
    "subscriptionPrefix": _NAME_IT,
    "admin.url": "is not needed: limits work over the binary protocol; remove it",
    "waitingForNonExistedTopic": "is not needed: a stream waits for its topic; remove it",
    "allowDifferentTopicSchemas": "is not needed: values are read as bytes; remove it",
    "pollTimeoutMs": _NOT_NEEDED,
    "kafkaConsumer.pollTimeoutMs": _NOT_NEEDED,
    "fetchOffset.numRetries": _NOT_NEEDED,
    "fetchOffset.retryIntervalMs": _NOT_NEEDED,
}
"""Options of Spark's Kafka source and of pulsar-spark that mean nothing here, or something that cannot be had."""

_REFUSED_BY_KEY: Final = {name.lower(): (name, why) for name, why in _REFUSED.items()}
_FOREIGN: Final = {"kafka.": "the Kafka client", "pulsar.": "the Java client of Pulsar"}


# -- the whole set


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a source was asked for. None: not given."""

    address: Address
    selection: Selection
    columns: tuple[str, ...]
    starting: OffsetSpec | None
    ending: OffsetSpec | None
    starting_ms: int | None
    ending_ms: int | None
    no_match: str
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    input_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    subscription: str  # empty: one of its own
    skip_unread: bool

    def says_start_of(self, key: TopicPartition) -> bool:
        """Whether an option says where one partition begins."""
        return self.starting_ms is not None or (self.starting is not None and self.starting.says(key))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a sink was asked for. Zero in a limit: the writer's own default."""

    address: Address
    topic: str
    compression: str
    hashing_scheme: HashingScheme
    key_form: KeyForm
    messages_max: int
    bytes_max: int

    def writing(self) -> dict[str, Any]:
        """The arguments of the client's ``write_rows``."""
        chosen = {"compression": self.compression, "hashing_scheme": self.hashing_scheme}
        limits = {"batching_max_messages": self.messages_max, "batching_max_bytes": self.bytes_max}
        return chosen | {name: limit for name, limit in limits.items() if limit}


def read_options(raw: Mapping[str, str], side: Side, environment: Mapping[str, str]) -> ReadOptions:
    """Check ``raw`` for ``side`` (READ: not known yet which of both) and give it types; ConfigError if it is wrong."""
    given = _parse_all(raw, side)
    columns: tuple[str, ...] = given.get("columns") or tuple(name for name in ALL_COLUMNS if name != HEADERS_COLUMN)
    if given.get("includeHeaders") and HEADERS_COLUMN not in columns:
        columns = (*columns, HEADERS_COLUMN)
    starting, ending = given.get("startingOffsets"), given.get("endingOffsets")
    if side is Side.BATCH_READ:
        _check_batch_words(starting, ending)
    _check_times(given.get("startingTimestamp"), given.get("endingTimestamp"))
    return ReadOptions(
        address=_address(given, environment),
        selection=_selection(given),
        columns=columns,
        starting=starting,
        ending=ending,
        starting_ms=given.get("startingTimestamp"),
        ending_ms=given.get("endingTimestamp"),
        no_match=given.get("startingOffsetsByTimestampStrategy", "error"),
        max_offsets_per_trigger=given.get("maxOffsetsPerTrigger"),
        min_partitions=given.get("minPartitions"),
        input_partitions=given.get("inputPartitions"),
        max_records_per_partition=given.get("maxRecordsPerPartition"),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        subscription=given.get("subscriptionName", ""),
        skip_unread=given.get("skipUnread", False),
    )


def write_options(raw: Mapping[str, str], side: Side, environment: Mapping[str, str]) -> WriteOptions:
    """Check ``raw`` for ``side`` and give it types; ConfigError says what is wrong."""
    sparks_own = _SPARKS_OWN if side is Side.STREAM_WRITE else frozenset()
    given = _parse_all({key: text for key, text in raw.items() if key.lower() not in sparks_own}, side)
    return WriteOptions(
        address=_address(given, environment),
        topic=given.get("topic", ""),
        compression=given.get("compression", "none"),
        hashing_scheme=given.get("hashingScheme", HASHING_SCHEME_DEFAULT),
        key_form=given.get("keyForm", "auto"),
        messages_max=given.get("batchingMaxMessages", 0),
        bytes_max=given.get("batchingMaxBytes", 0),
    )


def _parse_all(raw: Mapping[str, str], side: Side) -> dict[str, Any]:
    """Values by proper name."""
    given: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, text in raw.items():
        option = _find(key, side)
        _check_side(option, side)
        if option.name in given:
            raise ConfigError(
                f'options "{spelled[option.name]}" and "{_SPELLED[key.lower()]}" mean the same',
                hint=f"give only {option.name}",
            )
        try:
            given[option.name] = option.parse(text)
        except (ValueError, PulsarishError) as error:
            raise ConfigError(
                f'option {option.name}="{_shown(text)}" is not valid: {error}', hint=_example(option)
            ) from error
        spelled[option.name] = _SPELLED[key.lower()]
    return given


def _shown(text: str) -> str:
    """``text`` as far as it fits into one line."""
    cut = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cut)


def _find(key: str, side: Side) -> Option:
    option = _BY_KEY.get(key.lower())
    if option is not None:
        return option
    if refused := _REFUSED_BY_KEY.get(key.lower()):
        name, why = refused
        raise ConfigError(f'option "{name}" {why}')
    here = [name for name, option in _BY_KEY.items() if option.sides & side]
    if near := _nearest(key, here) or _nearest(key, _BY_KEY):
        option = _BY_KEY[near]
        raise ConfigError(f'option "{key}" is unknown', hint=f"did you mean {option.name}? {_example(option)}")
    for start, whose in _FOREIGN.items():
        if key.lower().startswith(start):
            raise ConfigError(f'option "{key}" is a setting of {whose}, which is not used here', hint="remove it")
    names = ", ".join(option.name for option in OPTIONS if option.sides & side)
    raise ConfigError(f'option "{key}" is unknown', hint=f"the options are {names}")


def _nearest(key: str, names: Iterable[str]) -> str | None:
    return closest(key, names, likeness_min=_LIKENESS_MIN)


def _check_side(option: Option, side: Side) -> None:
    if option.sides & side:
        return
    if option.wrong_side and side in Side.READ:
        where = "a stream" if side is Side.STREAM_READ else "a batch read"
        raise ConfigError(f'option "{option.name}" does not work in {where}: {option.wrong_side}')
    here = _SIDE_NAMES[Side.READ if side in Side.READ else Side.WRITE]
    there = _SIDE_NAMES.get(option.sides, _SIDE_NAMES[Side.READ])
    raise ConfigError(f'option "{option.name}" belongs to {there}, not to {here}', hint="remove it")


def _example(option: Option) -> str:
    quote = "'" if '"' in option.example else '"'
    return f'example: .option("{option.name}", {quote}{option.example}{quote})'


def _address(given: Mapping[str, Any], environment: Mapping[str, str]) -> Address:
    url, directory = given.get("service.url", ""), given.get("data.dir", "")
    if url and directory:
        raise ConfigError(
            "options service.url and data.dir were both given", hint="data.dir is for the embedded broker; give one"
        )
    patience = {
        "operation_timeout_s": given.get("operationTimeoutMs", OPERATION_TIMEOUT_S),
        "connection_timeout_s": given.get("connectionTimeoutMs", CONNECTION_TIMEOUT_S),
    }
    if url or directory:
        return Address(url, directory, **patience)
    if url := environment.get(ENV_SERVICE_URL, ""):
        try:
            return Address(_service_url(url), **patience)
        except ValueError as error:
            raise ConfigError(f'{ENV_SERVICE_URL}="{url}" in the environment is not valid: {error}') from error
    return Address("", _directory(str(default_data_dir(environment))), **patience)


def _selection(given: Mapping[str, Any]) -> Selection:
    chosen = [name for name in _SELECTORS if name in given]
    if len(chosen) == 1:
        selected = given[chosen[0]]
        selection = selected if isinstance(selected, Selection) else Selection.of_topics([selected])
        _check_stored(chosen[0], selection)
        return selection
    found = "none" if not chosen else " and ".join(chosen)
    raise ConfigError(
        f"exactly one of the options {', '.join(_SELECTORS)} says what to read, and {found} were given",
        hint='example: .option("topic", "flights")',
    )


def _check_stored(option: str, selection: Selection) -> None:
    for topic, _ in selection.topics:
        if not TopicName.parse(topic).persistent:
            raise ConfigError(
                f"option {option} names {topic}, which stores nothing that Spark could read",
                hint="read a persistent:// topic, or receive from this one with a client as messages come",
            )


def _check_times(starting_ms: int | None, ending_ms: int | None) -> None:
    if starting_ms is not None and ending_ms is not None and starting_ms > ending_ms:
        raise ConfigError(
            f"startingTimestamp, {timestamp_text(starting_ms)}, is after endingTimestamp, {timestamp_text(ending_ms)}",
            hint="swap them",
        )


def _check_batch_words(starting: OffsetSpec | None, ending: OffsetSpec | None) -> None:
    if starting is not None and starting.mentions("latest"):
        raise ConfigError(
            "startingOffsets says latest, where a batch read finds nothing", hint="use earliest, an id or an index"
        )
    if ending is not None and ending.mentions("earliest"):
        raise ConfigError("endingOffsets says earliest, so nothing would be read", hint="use latest, an id or an index")
