# SPDX-License-Identifier: Apache-2.0
"""The commands of ``python -m pulsarish_spark``. What they find is data on stdout, what they say of it is on stderr."""

from __future__ import annotations

import sys

import click

from broker_core.base.errors import PulsarishError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Tools beside the Spark source and sink."""


@commands.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
def lint(paths: tuple[str, ...]) -> None:
    """What to change in jobs of Spark's Kafka format: Python files and notebooks. Ends with 1 if there is something."""
    from pulsarish_spark.moving.lint import lint as findings_of

    findings = [finding for path in paths for finding in findings_of(path)]
    for finding in findings:
        click.echo(str(finding))
    click.echo(f"to change or to check: {len(findings)}", err=True)
    sys.exit(1 if findings else 0)


def main() -> None:
    """Run the command of the process's command line."""
    try:
        commands(prog_name="python -m pulsarish_spark")
    except PulsarishError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
