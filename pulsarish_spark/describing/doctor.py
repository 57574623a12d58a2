# SPDX-License-Identifier: Apache-2.0
"""Checks, one after another, what a read needs: options, broker, topic, and what Spark starts.

Makes nothing on the broker. A check that needs one that failed is left out and said to be. Must not know how checks are
shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import AuthenticationError, ConfigError, PulsarishError
from pulsarish_spark.connecting.connection import Address, connected
from pulsarish_spark.describing.description import python_text
from pulsarish_spark.describing.dry_run import broker_found
from pulsarish_spark.describing.spark_side import JAVA_MIN, find_java, workers_python
from pulsarish_spark.options import ReadOptions, Side, address_options, names_topics, option_texts, read_options
from pulsarish_spark.viewing.broker_view import HOW_TO_GET_INDEXES, BrokerView
from pulsarish_spark.viewing.layout import discover

if TYPE_CHECKING:
    from broker_core.client import Client

PATIENCE_S: Final = 10.0
"""Time limit of the wait for a broker: a person who looks for a fault does not wait as long as a query."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor: what was checked, whether it is in order, and what was seen or what to do.

    ``is_ok`` None: it could not be checked, as one before it failed, or says nothing of right or wrong.
    """

    name: str
    is_ok: bool | None
    text: str

    def __str__(self) -> str:
        return f"{_WORDS[self.is_ok]:<7} {self.name}: {self.text}"


_WORDS: Final = {True: "ok", False: "failed", None: "-"}
_LEFT_OUT: Final = "not checked, as one before it failed"


def checks(topic: str | None, options: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Check]:
    """All checks in their order, each as soon as it is made. ``options``: as Spark's; they may name the topic."""
    given = option_texts(topic, options)
    try:
        read = read_options(given, Side.READ, environment) if names_topics(given) else None
        address = address_options(given, environment) if read is None else read.address
    except ConfigError as error:
        yield Check("options", False, str(error))
    else:
        yield Check("options", True, f"{len(options)} given")
        yield from _broker(address, read)
    yield _python(environment)
    yield _java(environment)


def _broker(address: Address, read: ReadOptions | None) -> Iterator[Check]:
    hasty = replace(address, operation_timeout_s=min(address.operation_timeout_s, PATIENCE_S))
    try:
        with connected(hasty) as client:
            product = client.server_version()
            yield Check("address", True, f"{client.config.service_url} answers ({product})")
            yield Check("authentication", True, "accepted")
            if read is not None:
                yield from _topic(client, read)
    except AuthenticationError as error:
        yield Check("address", True, "it answers")
        yield Check("authentication", False, f"{error}; see the options token, tokenFile and authPluginClassName")
    except PulsarishError as error:
        advice = "" if error.hint else "; check service.url, and that a broker runs there"
        yield Check("address", False, f"{error}{advice}")
        yield Check("authentication", None, _LEFT_OUT)


def _topic(client: Client, read: ReadOptions) -> Iterator[Check]:
    try:
        layout = discover(read.selection, client)
        if not layout.names:
            raise ConfigError(f"no topic matches {read.selection.pattern}", hint="check the pattern")
        ends = BrokerView(client).latest_of(layout.names.values())
        told = broker_found(client, [*ends.values()]).tells_indexes
    except PulsarishError as error:
        yield Check("topic", False, str(error))
        yield Check("message indexes", None, _LEFT_OUT)
        return
    topics = {key.topic for key in layout.names}
    text = f"{_counted(len(layout.names), 'partition')} of {_counted(len(topics), 'topic')}"
    yield Check("topic", True, text)
    # A broker that does not tell them is one to read from all the same.
    yield Check("message indexes", told or None, _INDEX_TEXTS[told])


_INDEX_TEXTS: Final = {
    True: "the broker tells them",
    False: f"the broker does not tell them, so the column offset is null; {HOW_TO_GET_INDEXES}",
    None: "unknown, as there is no message to see it by",
}


def _python(environment: Mapping[str, str]) -> Check:
    found = workers_python(environment)
    advice = "call pulsarish_spark.use_this_python() before the session is made, or set PYSPARK_PYTHON"
    if "PYSPARK_PYTHON" in environment:  # It wins over the call.
        advice = "set PYSPARK_PYTHON to another one, or unset it and call pulsarish_spark.use_this_python()"
    text = python_text(found)
    return Check("workers' Python", not found.problem, f"{text}; {advice}" if found.problem else text)


def _java(environment: Mapping[str, str]) -> Check:
    found = find_java(environment)
    advice = f"install Java {JAVA_MIN} or later and set JAVA_HOME to its folder"
    text = f"{found.name}; {found.problem}; {advice}" if found.problem else found.name
    return Check("Java", not found.problem, text)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
