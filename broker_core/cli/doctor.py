# SPDX-License-Identifier: Apache-2.0
"""``pulsarish doctor``: every checksum of a data directory, offline, changing nothing.

The broker must not run on it. On stdout is what was found in each file; exit code 7 if anything is damaged.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from broker_core.cli.exits import MEANINGS, Exit
from broker_core.cli.output import Format, counted, format_option, human_bytes, print_rows, say
from broker_core.cli.target import data_dir_option, directory_or_default


@click.command()
@data_dir_option("The directory to examine; no broker may be running on it.")
@format_option
@click.pass_context
def doctor(context: click.Context, data_dir: Path | None, output: Format | None) -> None:
    """Check every checksum of a data directory, without a broker and without changing anything."""
    from broker_core.storage.check import verify_directory
    from broker_core.storage.disk import RealDisk
    from broker_core.wire import core

    if not core.COMPILED:
        say(f"the core is not compiled here, so that broker and clients are several times slower; {core.HINT}")
    report = verify_directory(RealDisk(), str(directory_or_default(data_dir, os.environ)))
    rows = [
        {
            "file": file.path,
            "kind": file.kind,
            "records": file.records,
            "size": file.size_bytes,
            "problems": file.problems,
            "notes": file.notes,
        }
        for file in report.files
    ]
    print_rows(rows, output)
    records = counted(report.records, "record", "records")
    say(f"examined {len(rows)} files, {records}, {human_bytes(report.size_bytes)}")
    if report.ok:
        say("no damage found")
        return
    problems = "1 problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
    say(f"{MEANINGS[Exit.DAMAGE]}: {problems}; nothing was changed")
    if report.can_start:
        say("keep a copy of the directory; the broker can start on it and serves what is sound")
    else:
        say("keep a copy of the directory; the broker does not start on it as it is")
    context.exit(Exit.DAMAGE)
