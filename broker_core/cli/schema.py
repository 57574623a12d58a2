# SPDX-License-Identifier: Apache-2.0
"""``pulsarish schema``: the versions of a topic's schema, and what a change of it would break."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from broker_core.base.errors import TopicNotFoundError, UsageError
from broker_core.base.names import TopicName
from broker_core.base.printable import printable_json
from broker_core.cli.output import Format, Row, counted, format_option, on_terminal, print_rows, say
from broker_core.cli.parameter_types import WholeNumber
from broker_core.cli.schema_access import SchemaAccess, no_schema, schema_access
from broker_core.cli.schema_files import STDIN, schema_in_file, type_named, type_option
from broker_core.cli.target import Target, target_options
from broker_core.cli.topic import confirm, yes_option
from broker_core.schemas.strategies import Strategy

if TYPE_CHECKING:
    from broker_core.cli.schema_check import Verdict
    from broker_core.schemas.avro.described import Column
    from broker_core.schemas.compatibility import Entry
    from broker_core.schemas.definition import Definition
    from broker_core.schemas.info import SchemaInfo

_LIST_COLUMNS: Final = ("version", "type", "added", "fields", "changes")

_STRATEGIES: Final = [each.name for each in Strategy if each is not Strategy.UNDEFINED]


@click.group()
def schema() -> None:
    """List, show, add, compare and delete the schemas of topics."""


@schema.command("list")
@click.argument("topic")
@format_option
@target_options
def list_versions(target: Target, topic: str, output: Format | None) -> None:
    """List the versions of TOPIC's schema: + fields that came, - fields that went, ~ fields that changed."""
    name = TopicName.parse(topic)
    with schema_access(target, name) as access:
        versions = access.versions(name)
    print_rows(
        list(_rows(versions)), output, empty=f"{no_schema(name).message}; {no_schema(name).hint}", columns=_LIST_COLUMNS
    )


@schema.command()
@click.argument("topic")
@click.option("--version", "version", type=WholeNumber(0), metavar="N", help="Which version. [default: the last]")
@click.option("--definition", "is_bare", is_flag=True, help="Print the definition alone, as its client wrote it.")
@format_option
@target_options
def show(target: Target, topic: str, version: int | None, is_bare: bool, output: Format | None) -> None:
    """Show the schema of TOPIC: on a terminal its fields, else all of it, as `put` and `check` read it from a file."""
    from broker_core.schemas.rest_forms import definition_text

    name = TopicName.parse(topic)
    with schema_access(target, name) as access:
        entry = access.schema(name, version)
    assert entry.info is not None
    if is_bare:
        click.echo(definition_text(entry.info))
    elif _chosen(output) == "table":
        say(f"version {entry.version} of {name}: {entry.info.type.name}{_since(entry)}")
        if rows := _field_rows(entry.info):
            print_rows(rows, "table")
        else:
            click.echo(definition_text(entry.info))
    else:
        _print_object(_whole(name, entry, entry.info), output)


@schema.command()
@click.argument("topic")
@click.argument("file", default="", metavar="[FILE]")
@type_option("--type")
@format_option
@target_options
def put(target: Target, topic: str, file: str, kind: str | None, output: Format | None) -> None:
    """Add the schema in FILE (- for stdin) to TOPIC, or find the version that it has.

    FILE holds a definition, or an object with type, schema and properties as `show` prints it. Types such as string
    and int64 have no definition, and need no FILE. Exit code 10 if the schema is not compatible.

    \b
    pulsarish schema put orders order.avsc --type avro
    pulsarish schema show orders -o json | pulsarish schema put orders-copy -
    pulsarish schema put names --type string
    """
    name = TopicName.parse(topic)
    with schema_access(target, name) as access:
        before = _latest(access, name)
        version = access.add(name, _named(file, kind, before))
    if on_terminal() and before is not None and version <= before.version:
        say(f"{name} has it already")
    print_rows([{"topic": str(name), "version": version}], output)


@schema.command()
@click.argument("topic")
@click.argument("other")
@type_option("--type")
@click.option(
    "--strategy",
    type=click.Choice(_STRATEGIES, case_sensitive=False),
    help="Judge by this strategy. [default: the one that is in force for TOPIC]",
)
@format_option
@target_options
def check(
    target: Target, topic: str, other: str, kind: str | None, strategy: str | None, output: Format | None
) -> None:
    """Compare the schema of TOPIC with OTHER, a file (- for stdin) or another topic, and change nothing.

    It says of each field that differs whether readers with the new schema can read older data, and readers with the
    older schema new data; then whether TOPIC would take OTHER as its next schema, in the words of the broker. Exit
    code 0 if it would, 10 if not.

    \b
    pulsarish schema check orders order-v2.avsc
    pulsarish schema check orders orders-of-test --strategy BACKWARD_TRANSITIVE
    """
    from broker_core.cli.schema_check import judged

    name = TopicName.parse(topic)
    with schema_access(target, name) as access:
        versions = access.versions(name)
        last = versions[-1] if versions else None
        info = _other(access, other, kind, last)
        chosen = Strategy[strategy.upper()] if strategy else _in_force(access, name, last)
    verdict = judged(versions, info, chosen)
    if _chosen(output) == "table":
        _tell(name, verdict)
    else:
        _print_object({"topic": str(name), "other": other, **verdict.to_json()}, output)
    if verdict.refusal is not None:
        raise verdict.refusal


@schema.command()
@click.argument("topic")
@click.option("--force", is_flag=True, help="All versions: messages that were written with them become unreadable.")
@yes_option
@target_options
def delete(target: Target, topic: str, force: bool, yes: bool) -> None:
    """Delete the schema of TOPIC: whoever comes next may bring any.

    Messages stay readable, as their versions are kept for clients (an Apache Pulsar keeps none for them). With --force
    all versions go, and numbers begin anew: messages that were written with them may be read by later ones then.
    """
    name = TopicName.parse(topic)
    with schema_access(target, name) as access:
        versions = access.versions(name)
        if not versions and not force:
            raise no_schema(name)
        lost = "messages that were written with them cannot be decoded any more" if force else "any other may follow"
        confirm(f"Delete {counted(len(versions), 'version', 'versions')} of the schema of {name}: {lost}?", yes)
        access.delete(name, force=force)
    say(f"deleted the schema of {name}")


def _chosen(output: Format | None) -> Format:
    return output or ("table" if on_terminal() else "jsonl")


def _print_object(found: dict[str, Any], output: Format | None) -> None:
    click.echo(printable_json(found, indent=2 if output == "json" else None))


def _latest(access: SchemaAccess, name: TopicName) -> Entry | None:
    with suppress(TopicNotFoundError):
        return access.schema(name)
    return None


def _named(file: str, kind: str | None, latest: Entry | None) -> SchemaInfo:
    """The schema that ``put`` was given."""
    from broker_core.schemas.info import SchemaInfo

    named = type_named(kind)
    if file:
        return schema_in_file(file, named, None if latest is None else latest.info)
    if named is None or not named.is_primitive:
        raise UsageError("there is no FILE with a definition", hint="name a file, or - for stdin")
    return SchemaInfo(named)


def _other(access: SchemaAccess, other: str, kind: str | None, last: Entry | None) -> SchemaInfo:
    """The schema that ``check`` compares with: that of a file, or that of a topic where there is no such file."""
    if other == STDIN or Path(other).is_file():
        return schema_in_file(other, type_named(kind), None if last is None else last.info)
    if "." in other.rpartition("/")[2]:
        raise UsageError(f'there is no file "{other}"', hint="OTHER is a file, or a topic with a schema")
    if kind is not None:
        raise UsageError(f'--type is for a file, and "{other}" is none', hint="leave it out for a topic")
    found = access.schema(TopicName.parse(other)).info
    assert found is not None
    return found


def _in_force(access: SchemaAccess, name: TopicName, last: Entry | None) -> Strategy:
    told = None if last is None or last.info is None else access.strategy(name, last.info)
    if told is None and last is not None:
        say("the broker does not tell its strategy here: FULL, the default, is taken; --strategy names another")
    return told or Strategy.FULL


def _rows(versions: Sequence[Entry]) -> Iterator[Row]:
    from broker_core.schemas.comparison import compared

    before: Definition | None = None
    for each in versions:
        assert each.info is not None
        definition = _definition(each.info)
        fields = [] if before is None or definition is None else compared(before, definition).fields
        yield {
            "version": each.version,
            "type": each.info.type.name,
            "timestamp": each.added_ms or None,
            "added": _iso(each),
            "size": len(each.info.data),
            "fields": sum(1 for column in _columns(definition) if column.path),
            "changes": [_change(field.path, field.old, field.new) for field in fields],
        }
        before = definition


def _change(path: str, old: str | None, new: str | None) -> str:
    if not path:
        return f"{old} -> {new}"
    return f"{'+' if old is None else '-' if new is None else '~'}{path}"


def _iso(entry: Entry) -> str | None:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(entry.added_ms / 1000, UTC).isoformat(timespec="seconds") if entry.added_ms else None


def _since(entry: Entry) -> str:
    return f", since {_iso(entry)}" if entry.added_ms else ""


def _field_rows(info: SchemaInfo) -> list[Row]:
    columns = _columns(_definition(info))
    return [{"field": each.path or "value", "type": each.type, "default": each.default} for each in columns]


def _definition(info: SchemaInfo) -> Definition | None:
    """The definition of a schema; None for one of a form that older brokers took."""
    from broker_core.schemas.definition import InvalidSchemaError, definition_of

    try:
        return definition_of(info)
    except InvalidSchemaError:
        return None


def _columns(definition: Definition | None) -> list[Column]:
    from broker_core.schemas.comparison import told_columns

    return [] if definition is None else told_columns(definition)


def _whole(name: TopicName, entry: Entry, info: SchemaInfo) -> dict[str, Any]:
    from broker_core.schemas.rest_forms import to_rest

    whole = to_rest(info)
    with suppress(ValueError, RecursionError):
        whole["schema"] = json.loads(whole["schema"]) if whole["schema"] else ""
    return {"topic": str(name), "version": entry.version, "timestamp": entry.added_ms or None, **whole}


def _tell(name: TopicName, verdict: Verdict) -> None:
    from broker_core.cli.schema_check import field_rows

    if not verdict.comparisons:
        say(f"{name} has no schema, and takes any as its first")
        return
    rows = [
        {"field": row.pop("field") or "(all)", "version": version, **row}
        for version, comparison in verdict.comparisons
        for row in map(dict, field_rows(comparison))
    ]
    print_rows(rows, "table")
    if not rows:
        say(f"no field differs from version {verdict.comparisons[-1][0]}")
    if verdict.same_as is not None:
        say(f"it is version {verdict.same_as} of {name} already, and is taken as such")
    elif verdict.refusal is None:
        say(f"compatible by {verdict.strategy.name}")
    for each in verdict.advice:
        say(each)
