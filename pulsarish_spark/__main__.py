# SPDX-License-Identifier: Apache-2.0
"""The commands of ``python -m pulsarish_spark``. What they find is data on stdout, what they say of it is on stderr."""

from __future__ import annotations

import os
import sys

import click

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.base.printable import printable


def _show(text: object, *, err: bool = False) -> None:
    """Print lines, without what a terminal would obey in the names that they repeat."""
    click.echo(printable(str(text), keep="\n"), err=err)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Tools beside the Spark source and sink."""


@commands.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
def lint(paths: tuple[str, ...]) -> None:
    """Options to change in jobs of Spark's Kafka format: Python files and notebooks. Ends with 1 if there are any.

    A file that cannot be read is told and passed over; it ends with 2 then.
    """
    from pulsarish_spark.kafka_lint import lint as findings_of

    count, code = 0, 0
    for path in paths:
        try:
            findings = findings_of(path)
        except UsageError as error:
            _show(f"error: {error}", err=True)
            code = 2
            continue
        for finding in findings:
            _show(finding)
        count += len(findings)
    _show(f"to change: {count}", err=True)
    sys.exit(code or min(count, 1))


def _parsed_options(context: click.Context, _parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    if wrong := [name for name, equals, _ in split if not name or not equals]:
        raise click.BadParameter(
            f"{wrong[0]!r} has no value; write -o name=value, for example -o service.url=pulsar://host:6650"
        )
    own = {text for each in context.command.params for text in each.opts}
    if wrong := [name for name, *_ in split if f"--{name}" in own]:
        raise click.BadParameter(f"{wrong[0]!r} is no option of the source; write --{wrong[0]}")
    return {name: value for name, _, value in split}


_options = click.option(
    "-o", "options", metavar="NAME=VALUE", multiple=True, callback=_parsed_options, help="An option of the source."
)


@commands.command()
@click.argument("topic")
@click.option("--stream", is_flag=True, help="Describe a stream instead of a batch read.")
@_options
def describe(topic: str, stream: bool, options: dict[str, str]) -> None:
    """Tell where a read of TOPIC would start and end, and how much that is. Makes and acknowledges nothing."""
    from pulsarish_spark.describing.dry_run import describe as describe_read

    _show(describe_read(topic, stream=stream, **options))


@commands.command()
@click.option("--checkpoint", required=True, metavar="DIR", help="The checkpointLocation of the query.")
@click.option("--batch", type=int, metavar="N", help="Which batch. Default: the last one that was begun.")
@click.option(
    "--source", type=int, metavar="N", help="Which source of the query, from 0, if several are of this format."
)
@click.argument("file")
@_options
def export(checkpoint: str, batch: int | None, source: int | None, file: str, options: dict[str, str]) -> None:
    """Write the rows of one batch of a query to FILE, which replayFile reads without a broker."""
    from pulsarish_spark.replaying.exporting import export_batch

    exported = export_batch(checkpoint, file, batch=batch, source=source, **options)
    for what in exported.losses:
        _show(f"lost: {what}", err=True)
    _show(f"batch {exported.batch}: {exported.rows} rows in {file}")


@commands.command()
@click.argument("topic", required=False)
@_options
def doctor(topic: str | None, options: dict[str, str]) -> None:
    """Check what a read needs: options, broker, TOPIC, Python and Java. Ends with 1 if a check failed."""
    from pulsarish_spark.describing.doctor import checks

    failed = 0
    for check in checks(topic, options, os.environ):
        _show(check)
        failed += check.is_ok is False
    sys.exit(1 if failed else 0)


def main() -> None:
    """Run the command of the process's command line."""
    try:
        commands(prog_name="python -m pulsarish_spark")
    except PulsarishError as error:
        _show(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
