# SPDX-License-Identifier: Apache-2.0
"""All options, found by their names: Spark hands keys over in lower case.

Each is found by its lower-case name or alias and called by its proper name in errors. Unknown options, options of the
wrong side and bad values are ConfigErrors of one line. Options of other sources and of Spark itself that mean nothing
here are refused with the reason and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.suggest import closest
from pulsarish_spark.options.batch_limits import AMOUNTS, DIVIDING
from pulsarish_spark.options.connecting import ALIAS_BEGINNINGS, CONNECTING, SECURING
from pulsarish_spark.options.data_loss import LOSING
from pulsarish_spark.options.guarantee import GUARANTEEING
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.rows import FILTERING, SHAPING
from pulsarish_spark.options.sending import MAKING, SENDING
from pulsarish_spark.options.start_and_end import BOUNDS
from pulsarish_spark.options.subscriptions import FOLLOWING, QUEUEING
from pulsarish_spark.options.topics import REPLAYING, SELECTING
from pulsarish_spark.options.value_writing import NAMING
from pulsarish_spark.options.values import TYPING

OPTIONS: Final[tuple[Option, ...]] = (
    *CONNECTING,
    *SECURING,
    *SELECTING,
    *SHAPING,
    *TYPING,
    *NAMING,
    *BOUNDS,
    *FILTERING,
    *AMOUNTS,
    *DIVIDING,
    *LOSING,
    *FOLLOWING,
    *QUEUEING,
    *REPLAYING,
    *MAKING,
    *SENDING,
    *GUARANTEEING,
)

_NOT_NEEDED: Final = "is not needed here; remove it"
_NO_ENCRYPTION: Final = "is not supported: messages are not encrypted here; encrypt the value, or remove it"
_SIDE_BY_SIDE: Final = "is not possible: tasks write side by side, each as a producer of its own; remove it"
_NOTHING_WAITS: Final = "is not needed: a task has its rows at hand and waits for room by itself; remove it"
_OF_A_TABLE: Final = (
    "came from CREATE TABLE, which does not keep options; a view does: "
    "CREATE TEMPORARY VIEW flights USING pulsarish OPTIONS (topic 'flights')"
)
_OF_A_QUERY: Final = "is Spark's own, of a query that is written as a stream; give it after writeStream"

_PEM: Final = "is of Java's key stores; give PEM files: tlsTrustCertsFilePath, tlsCertificateFilePath, tlsKeyFilePath"

REFUSED: Final = {
    "pulsar.client.useKeyStoreTls": _PEM,
    "pulsar.client.tlsTrustStorePath": _PEM,
    "pulsar.client.tlsTrustStorePassword": _PEM,
    "pulsar.client.tlsKeyStorePath": _PEM,
    "pulsar.client.tlsKeyStorePassword": _PEM,
    "kafka.bootstrap.servers": "names a Kafka cluster and this format speaks Pulsar; "
    'give .option("service.url", "pulsar://host:6650"), or no address at all to use the embedded broker',
    "kafka.compression.type": 'is said otherwise here: .option("compression", "lz4")',
    "paths": 'was given by load([...]); name the topics: .option("topics", "a,b").load()',
    "owner": _OF_A_TABLE,
    "provider": _OF_A_TABLE,
    "checkpointLocation": _OF_A_QUERY,
    "queryName": _OF_A_QUERY,
    "waitingForNonExistedTopic": "is not needed: a stream waits for its topic; remove it",
    "allowDifferentTopicSchemas": "is not needed: values are read as bytes; remove it",
    "pollTimeoutMs": _NOT_NEEDED,
    "kafkaConsumer.pollTimeoutMs": _NOT_NEEDED,
    "fetchOffset.numRetries": _NOT_NEEDED,
    "fetchOffset.retryIntervalMs": _NOT_NEEDED,
    "pulsar.producer.topicName": 'is said otherwise here: .option("topic", "flights")',
    "pulsar.producer.cryptoKeyReader": _NO_ENCRYPTION,
    "pulsar.producer.encryptionKeys": _NO_ENCRYPTION,
    "pulsar.producer.cryptoFailureAction": _NO_ENCRYPTION,
    "pulsar.producer.messageCrypto": _NO_ENCRYPTION,
    "pulsar.producer.producerName": _SIDE_BY_SIDE,
    "pulsar.producer.accessMode": _SIDE_BY_SIDE,
    "pulsar.producer.customMessageRouter": "is not supported; the column partition says where a row goes",
    "pulsar.producer.batcherBuilder": 'is said otherwise here: .option("batchingType", "key_based")',
    "pulsar.producer.batchingEnabled": 'is said otherwise here: .option("batchingMaxMessages", "1") sends rows singly',
    "pulsar.producer.initialSequenceId": "is not supported; the column sequence_id numbers rows",
    "pulsar.producer.batchingMaxPublishDelayMicros": _NOTHING_WAITS,
    "pulsar.producer.blockIfQueueFull": _NOTHING_WAITS,
    "pulsar.producer.maxPendingMessages": _NOTHING_WAITS,
    "pulsar.producer.maxPendingMessagesAcrossPartitions": _NOTHING_WAITS,
}
"""Options of Spark's Kafka source and of pulsar-spark that mean nothing here, or something that cannot be had."""

OF_A_QUERY: Final = frozenset({"checkpointlocation", "queryname"})
"""The refused names, in lower case, that Spark passes to a streaming sink, where they are right."""

_SECURING_KAFKA: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
"""Beginnings of names. If such a setting is only removed, the client connects without TLS and without credentials."""

_SAID_INSTEAD: Final = (
    "secures connections of the Kafka client, which is not used here; TLS is .option"
    '("service.url", "pulsar+ssl://host:6651"), and who connects is said by tokenFile or authPluginClassName'
)

_FOREIGN: Final = {"kafka.": "the Kafka client", "pulsar.": "the Java client of Pulsar"}
"""Beginnings of the names of settings of other clients, and whose they are."""

_SIDE_NAMES: Final = {
    Side.READ: "the source",
    Side.WRITE: "the sink",
    Side.BATCH_READ: "spark.read",
    Side.STREAM_READ: "spark.readStream",
    Side.STREAM_WRITE: "writeStream",
}

_USES: Final = {
    Side.BATCH_READ: "a batch read",
    Side.STREAM_READ: "a stream",
    Side.BATCH_WRITE: "a batch write",
    Side.STREAM_WRITE: "a stream",
}

_SHOWN_MAX: Final = 200
"""Characters of a wrong value that an error repeats."""

_BY_KEY: Final = {key.lower(): option for option in OPTIONS for key in (option.name, *option.aliases)}
_SPELLED: Final = {key.lower(): key for option in OPTIONS for key in (option.name, *option.aliases)}
_LIKENESS_MIN: Final = 0.7
_FOREIGN_BEGINNING: Final = re.compile(r"kafka\.|pulsar\.[a-z]+\.")
_REFUSED_BY_KEY: Final = {name.lower(): (name, why) for name, why in REFUSED.items()}


def parse_all(raw: Mapping[str, str], side: Side) -> dict[str, Any]:
    """Values by proper name."""
    given: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, text in raw.items():
        option = _find(key, side)
        if option.name in given and key.lower().startswith(ALIAS_BEGINNINGS) and given[option.name] == text.strip():
            continue  # pulsar-spark's jobs say the same of its client and of its admin client.
        if option.name in given:
            raise ConfigError(
                f'options "{spelled[option.name]}" and "{_SPELLED[key.lower()]}" mean the same',
                hint=f"give only {option.name}",
            )
        given[option.name] = _parsed(option, text)
        spelled[option.name] = _SPELLED[key.lower()]
    return given


def check_option(key: str, text: str | None, side: Side) -> None:
    """ConfigError unless ``side`` has this option and can read ``text``; None: only the name is known."""
    if side is Side.STREAM_WRITE and key.lower() in OF_A_QUERY:
        return
    option = _find(key, side)
    if text is not None:
        _parsed(option, text)


def _parsed(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except (ValueError, PulsarishError) as error:
        raise ConfigError(
            f'option {option.name}="{_shown(option, text)}" is not valid: {error}', hint=_example(option)
        ) from error


def texts_of(raw: Mapping[str, str]) -> dict[str, str]:
    """The texts of ``raw``, which ``parse_all`` has accepted, by the proper names of their options."""
    return {_BY_KEY[key.lower()].name: text for key, text in raw.items()}


def _shown(option: Option, text: str) -> str:
    """``text`` as far as it fits into one line, without the user and the password of a URL."""
    if option.name.endswith(".url"):
        text = re.sub(r"^([a-z+]*://)?.*@", r"\1***@", text, flags=re.DOTALL)
    cut = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in cut)


def _find(key: str, side: Side) -> Option:
    """The option of ``side`` that has this name."""
    option = _BY_KEY.get(key.lower())
    if option is not None:
        _check_side(option, side)
        return option
    if refused := _REFUSED_BY_KEY.get(key.lower()):
        name, why = refused
        raise ConfigError(f'option "{name}" {why}')
    raise _unknown(key, side)


def _unknown(key: str, side: Side) -> ConfigError:
    """The error for an option that does not exist."""
    if key.lower().startswith(_SECURING_KAFKA):
        return ConfigError(f'option "{key}" {_SAID_INSTEAD}')
    for start, whose in _FOREIGN.items():
        if key.lower().startswith(start):
            return _unknown_foreign(key, whose)
    here = [name for name, option in _BY_KEY.items() if option.sides & side]
    if near := _nearest(key, here) or _nearest(key, _BY_KEY):
        option = _BY_KEY[near]
        return ConfigError(f'option "{key}" is unknown', hint=f"did you mean {option.name}? {_example(option)}")
    names = ", ".join(option.name for option in OPTIONS if option.sides & side)
    return ConfigError(f'option "{key}" is unknown', hint=f"the options are {names}")


def _unknown_foreign(key: str, whose: str) -> ConfigError:
    """Likewise, under a name of another client. Its beginning, alike in all of them, says nothing of what is meant."""
    found = _FOREIGN_BEGINNING.match(key.lower())
    beginning = found[0] if found else ""
    alike = [name for name in (*_BY_KEY, *_REFUSED_BY_KEY) if beginning and name.startswith(beginning)]
    rest = _nearest(key[len(beginning) :], [name[len(beginning) :] for name in alike])
    near = "" if rest is None else beginning + rest
    if near in _BY_KEY:
        option = _BY_KEY[near]
        return ConfigError(f'option "{key}" is unknown', hint=f"did you mean {_SPELLED[near]}? {_example(option)}")
    if near:
        name, why = _REFUSED_BY_KEY[near]
        return ConfigError(f'option "{key}" is unknown', hint=f"did you mean {name}? It {why}")
    return ConfigError(f'option "{key}" is a setting of {whose}, which is not used here', hint="remove it")


def _nearest(key: str, names: Iterable[str]) -> str | None:
    return closest(key, names, likeness_min=_LIKENESS_MIN)


def _check_side(option: Option, side: Side) -> None:
    if option.sides & side:
        return
    if option.wrong_side and option.sides & (Side.READ if side in Side.READ else Side.WRITE):
        raise ConfigError(f'option "{option.name}" does not work in {_USES[side]}: {option.wrong_side}')
    here = _SIDE_NAMES[Side.READ if side in Side.READ else Side.WRITE]
    there = _SIDE_NAMES.get(option.sides, _SIDE_NAMES[Side.READ])
    raise ConfigError(f'option "{option.name}" belongs to {there}, not to {here}', hint="remove it")


def _example(option: Option) -> str:
    quote = "'" if '"' in option.example else '"'
    return f'example: .option("{option.name}", {quote}{option.example}{quote})'
