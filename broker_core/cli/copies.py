# SPDX-License-Identifier: Apache-2.0
"""``pulsarish backup`` and ``pulsarish restore``: copies of a data directory, and putting one back.

A backup is made while the broker runs, and is a data directory itself: doctor and serve take it as it is. Restoring
changes nothing of it, and overwrites nothing.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import PulsarishError
from broker_core.cli.exits import MEANINGS, Exit
from broker_core.cli.output import counted, human_bytes, say
from broker_core.cli.target import data_dir_option, directory_or_default

if TYPE_CHECKING:
    from broker_core.storage.backup import CopyReport


@click.command()
@click.argument("directory", metavar="DIRECTORY", type=click.Path(path_type=Path))
@data_dir_option("What to copy; its broker may run.")
@click.pass_context
def backup(context: click.Context, directory: Path, data_dir: Path | None) -> None:
    """Copy a data directory to DIRECTORY, which must be empty or not there, while its broker runs.

    The copy has all that was confirmed before the command began, and is a data directory itself.
    """
    source = directory_or_default(data_dir, os.environ)
    report = _copied(source, directory)
    say(f"copied {source} to {directory}: {_amount(report)}")
    _tell_missing(context, report)


@click.command()
@click.argument("directory", metavar="DIRECTORY", type=click.Path(exists=True, file_okay=False, path_type=Path))
@data_dir_option("Where to put it; no broker may run on it.")
@click.option("--replace", is_flag=True, help="Move what the data directory has aside, under another name beside it.")
@click.pass_context
def restore(context: click.Context, directory: Path, data_dir: Path | None, replace: bool) -> None:
    """Put the backup in DIRECTORY into the place of a data directory.

    Queries whose checkpoints are newer than the backup say so when they go on.
    """
    target = directory_or_default(data_dir, os.environ)
    if replace and target.is_dir():
        _move_aside(target)
    report = _copied(directory, target)
    say(f"restored {target} from {directory}: {_amount(report)}")
    _tell_missing(context, report)


def _copied(source: Path, target: Path) -> CopyReport:
    from broker_core.storage.backup import copy_directory
    from broker_core.storage.disk import RealDisk

    return copy_directory(RealDisk(), os.path.abspath(source), os.path.abspath(target))


def _move_aside(target: Path) -> None:
    from broker_core.storage import layout
    from broker_core.storage.disk import RealDisk

    moment = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    aside = target.with_name(f"{target.name}.before-{moment:%Y%m%dT%H%M%SZ}")
    if aside.exists():
        raise PulsarishError(f"{aside} is there already", hint="try again in a second")
    lock = RealDisk().lock(layout.lock_path(str(target)))
    try:
        target.rename(aside)
    finally:
        lock.release()
    say(f"moved {target} to {aside}; delete it when you do not need it any more")


def _amount(report: CopyReport) -> str:
    topics, files = counted(report.topics, "topic", "topics"), counted(report.files, "file", "files")
    return f"{topics}, {files}, {human_bytes(report.size_bytes)}"


def _tell_missing(context: click.Context, report: CopyReport) -> None:
    """Damage of the original, which the copy has too."""
    if report.missing:
        names = ", ".join(name.removeprefix("/") for name in report.missing)
        say(f"{MEANINGS[Exit.DAMAGE]}: the original lacks {names}; pulsarish doctor says more")
        context.exit(Exit.DAMAGE)
