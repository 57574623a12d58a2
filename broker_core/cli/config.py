# SPDX-License-Identifier: Apache-2.0
"""``pulsarish config``: what the broker would run with, and what every setting means."""

from __future__ import annotations

import os
from pathlib import Path

import click

from broker_core.cli.output import Format, format_option, print_rows
from broker_core.cli.serve import settings_options


@click.group()
def config() -> None:
    """Settings of the broker: values, origins, meanings."""


@config.command()
@settings_options
@format_option
def show(assignments: tuple[str, ...], config_file: Path | None, output: Format | None) -> None:
    """Print every setting with its value and where it comes from.

    Later sources win: default, --config file, environment (PULSARISH_<NAME>), --set. Fails if any of them is wrong, so
    it also checks a file.
    """
    from broker_core.cli.settings_sources import declared, resolve

    resolved = resolve(file=config_file, env=os.environ, assignments=assignments)
    rows = [
        {
            "name": name,
            "value": getattr(resolved.settings, setting.field),
            "origin": resolved.origins[name],
            "accepts": setting.accepts,
            "environment": setting.env,
        }
        for name, setting in declared().items()
    ]
    print_rows(rows, output, columns=("name", "value", "origin"))


@config.command()
def docs() -> None:
    """Print the documentation of all settings as Markdown."""
    from broker_core.cli.settings_docs import settings_markdown

    click.echo(settings_markdown(), nl=False)
