# SPDX-License-Identifier: Apache-2.0
"""What has to change in a job that reads or writes Spark's Kafka format, so that it runs on ``pulsarish``.

Every answer on an option is the one that the source or the sink itself gives for it, once for each line that has to
change, however often a dict of options is used. What a program computes cannot be judged; then the option is judged by
its name, and names that are Kafka's for sure, ``kafka.*``, are found wherever a text of the program has one. Nothing is
changed or run.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from broker_core.base.errors import ConfigError
from pulsarish_spark.moving.chains import Use, uses
from pulsarish_spark.moving.programs import program_of
from pulsarish_spark.moving.sql_views import sql_uses
from pulsarish_spark.moving.topic_names import short_names
from pulsarish_spark.options import Side, check_option

KAFKA: Final = "kafka"
_PACKAGE: Final = "spark-sql-kafka"
_SETTING: Final = re.compile(r"kafka(\.\w+)+", re.IGNORECASE)

_BOUNDS: Final = ("startingOffsets", "endingOffsets")

Severity = Literal["change", "check"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to do. ``change``: the job fails, or does something else, without it; ``check``: it may."""

    place: str
    severity: Severity
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.text}"


def lint(path: str | os.PathLike[str]) -> list[Finding]:
    """What to change in a Python file or a notebook that uses Spark's Kafka format, in the order of its lines.

    Empty where it does not use it. UsageError where ``path`` cannot be read, or is no Python.
    """
    program = program_of(path)
    found = sorted(set(_of_program(program.tree)))
    return [Finding(program.place(line), severity, text) for line, severity, text in found]


_Found = Iterator[tuple[int, Severity, str]]


def _of_program(tree: ast.Module) -> _Found:
    of_kafka = [use for use in uses(tree) if use.format == KAFKA]
    for use in of_kafka:
        yield use.line_of("format"), "change", 'format("kafka") becomes format("pulsarish")'
        yield from _options(use)
        yield from _way_of_writing(use)
        yield from _triggers(use)
    in_sql = list(sql_uses(tree, KAFKA))
    for statement in in_sql:
        yield statement.line, "change", "USING kafka becomes USING pulsarish"
        for name, line in statement.options:
            yield from _option(name, None, Side.BATCH_READ, line)
    sides = [use.side for use in of_kafka] + [Side.BATCH_READ for _ in in_sql]
    if sides:
        yield from _names_of_settings(tree, sides)
    yield from _packages(tree)
    if in_sql or any(use.side in Side.READ for use in of_kafka):
        yield from _names_of_topics(tree)


def _options(use: Use) -> _Found:
    for name, value in use.options.items():
        yield from _option(name, value, use.side, use.line_of(name))
    for bound in _BOUNDS if use.side in Side.READ else ():
        for name, value in use.named(bound):
            if _counts(value):
                why = "offsets by number are those of the Kafka topic; give ids, times or words of the Pulsar topic"
                yield use.line_of(name), "check", why


def _option(name: str, value: str | None, side: Side, line: int) -> _Found:
    try:
        check_option(name, value, side)
    except ConfigError as error:
        yield line, "change", str(error)


def _names_of_settings(tree: ast.Module, sides: Sequence[Side]) -> _Found:
    """Names of Kafka's settings that none of ``sides`` takes, whatever way they take there: dicts, loops, functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _SETTING.fullmatch(node.value):
            refusals = [[*_option(node.value, None, side, node.lineno)] for side in sides]
            if all(refusals):
                yield from refusals[0]


def _counts(offsets: str | None) -> bool:
    """Whether Kafka's JSON of offsets has a number that is not -1, latest, or -2, earliest."""
    try:
        topics = json.loads(offsets or "")
    except ValueError:
        return False
    partitions = topics.values() if isinstance(topics, dict) else ()
    return any(isinstance(n, int) and n >= 0 for each in partitions if isinstance(each, dict) for n in each.values())


def _way_of_writing(use: Use) -> _Found:
    if use.side is Side.BATCH_WRITE and use.is_ended and not use.has_mode:
        yield use.line, "change", 'add .mode("append"): Spark refuses its default mode for Python sources'
    if use.side is Side.BATCH_WRITE and use.has_mode and use.mode not in (None, "append"):
        why = f'mode("{use.mode}") becomes mode("append"): a topic can only be appended to'
        yield use.line_of("mode"), "change", why
    if use.side is Side.STREAM_WRITE and use.output_mode in ("update", "complete"):
        instead = "use append with a watermark, or write what changed from foreachBatch"
        why = f'outputMode("{use.output_mode}") is refused for Python sinks; {instead}'
        yield use.line_of("outputMode"), "change", why


def _triggers(use: Use) -> _Found:
    for name in use.triggers:
        if name in ("continuous", "realTime"):
            yield (
                use.line_of("trigger"),
                "change",
                f"trigger({name}=...) does not exist for Python sources: leave it out, or use processingTime",
            )


def _packages(tree: ast.Module) -> _Found:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PACKAGE in node.value:
            yield node.lineno, "change", f"remove the package {_PACKAGE}: there is no JAR to install"


def _names_of_topics(tree: ast.Module) -> _Found:
    give = 'give the source .option("topicNames", "as-given")'
    for found in short_names(tree, KAFKA):
        why = f'{give}: the column topic has the full name of "{found.name}" without it'
        yield found.line, "change" if found.is_sure else "check", why
