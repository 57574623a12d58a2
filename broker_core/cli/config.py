# SPDX-License-Identifier: Apache-2.0
"""``pulsarish config``: what the broker would run with, and what every setting means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

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
    it also checks a file. A value that may be secret is shown as ***.
    """
    from broker_core.base.settings import shown
    from broker_core.cli.settings_sources import declared, resolve

    resolved = resolve(file=config_file, env=os.environ, assignments=assignments)
    values = shown(resolved.settings)
    rows = [
        {
            "name": name,
            "value": values[name],
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
    click.echo(settings_markdown(), nl=False)


def settings_markdown() -> str:
    """The page ``docs/settings.md``."""
    from broker_core.base.accepted_values import text_of
    from broker_core.cli.settings_sources import declared

    rows = [f"| `{s.name}` | `{text_of(s.default)}` | {s.accepts} | {s.description} |" for s in declared().values()]
    return "\n".join([*_SETTINGS_INTRO, "| setting | default | takes | meaning |", "|---|---|---|---|", *rows, ""])


_SETTINGS_INTRO: Final = (
    "# Settings of the broker",
    "",
    "Made from the code by `make docs`; do not edit. Names are Pulsar's where Pulsar has the setting.",
    "",
    "A value comes from, in rising order of strength:",
    "",
    "1. the default below,",
    "2. a TOML file: `pulsarish serve --config FILE` (see `conf/`),",
    "3. the environment: `PULSARISH_` and the name in upper snake case, `PULSARISH_MAX_MESSAGE_SIZE=1048576`,",
    "4. the command line: `--set maxMessageSize=1048576`; `--durability`, `--idle-stop`, `--log-level` and",
    "   `--log-format` have options of their own.",
    "",
    "An unknown name or a value out of bounds stops the start with an error that names its source. Of variables in the",
    "environment only those count as unknown settings that are spelled nearly like one: others may be somebody else's.",
    "`pulsarish config show` prints every value and where it came from, without starting anything.",
    "",
)
