# SPDX-License-Identifier: Apache-2.0
"""``pulsarish status``, ``stop``, ``logs`` and ``doctor``: a data directory and its broker, whoever started that.

A Spark job starts the broker of its directory, which outlives it. The process is known by the lock of the directory,
so that no signal reaches another process that has its number by now. The doctor reads every checksum offline, and
changes nothing.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import ConnectionLostError, NotAllowedError, OperationTimeoutError, PulsarishError
from broker_core.base.printable import printable
from broker_core.base.private_files import private_opener
from broker_core.cli.exits import MEANINGS, Exit
from broker_core.cli.output import Format, counted, format_option, human_bytes, print_rows, say
from broker_core.cli.parameter_types import WholeNumber
from broker_core.cli.target import data_dir_option, directory_or_default, running_broker, timeout_option, tls_options

if TYPE_CHECKING:
    from broker_core.base.runtime import RuntimeInfo

_POLL_S: Final = 0.05
_FOLLOW_S: Final = 0.25
_HEALTH_TIMEOUT_S: Final = 5.0


@click.command()
@data_dir_option("Whose broker.")
@format_option
@click.pass_context
def status(context: click.Context, data_dir: Path | None, output: Format | None) -> None:
    """Print whether a broker runs on a data directory, its process, addresses and health. Exit code 5 if none runs."""
    directory = directory_or_default(data_dir, os.environ)
    try:
        info = running_broker(directory)
    except ConnectionLostError as error:
        print_rows([_row(directory, None, "")], output)
        say(f"{error.message}; {error.hint}")
        context.exit(Exit.UNREACHABLE)
    print_rows([_row(directory, info, _health(directory, info))], output)


@click.command()
@data_dir_option("Whose broker.")
@timeout_option("How long to wait until it has stopped.")
def stop(data_dir: Path | None, timeout_s: float) -> None:
    """Stop the broker of a data directory in order, and wait until it has. A Spark query that uses it starts it again.

    Nothing that was confirmed is lost by it, nor by killing a broker.
    """
    from broker_core.base.runtime import has_directory

    directory = directory_or_default(data_dir, os.environ)
    info = running_broker(directory)
    try:
        os.kill(info.pid, signal.SIGTERM)
    except (ProcessLookupError, PermissionError) as error:
        raise NotAllowedError(
            f"process {info.pid} of {directory} cannot be stopped from here: {error.strerror}",
            hint="it is another user's, or in another container: stop it there",
        ) from error
    clock = SystemClock()
    deadline_s = clock.monotonic() + timeout_s
    while has_directory(info, directory):
        if clock.monotonic() > deadline_s:
            raise OperationTimeoutError(
                f"the broker of {directory}, process {info.pid}, has not stopped in {timeout_s:g} s",
                hint=f"wait, or kill it, which loses nothing that was confirmed: kill -9 {info.pid}",
            )
        clock.sleep(_POLL_S)
    say(f"stopped the broker of {directory}, process {info.pid}")


@click.command()
@data_dir_option("Whose broker.")
@click.option("-n", "--lines", type=WholeNumber(0), default=50, show_default=True, help="How many of the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
def logs(data_dir: Path | None, lines: int, follow: bool) -> None:
    """Print the end of the log that the broker of a data directory keeps there, as each does that started itself.

    A broker of `pulsarish serve` writes to its stderr, or where the setting logFile says.
    """
    from broker_core.base.runtime import EMBEDDED_LOG_FILE

    path = directory_or_default(data_dir, os.environ) / EMBEDDED_LOG_FILE
    try:
        for line in _followed(path, lines) if follow else _tail(path, lines):
            click.echo(printable(line, keep="\t"))
    except FileNotFoundError as error:
        raise PulsarishError(
            f"there is no log in {path.parent}: {path.name} is missing",
            hint="a broker of pulsarish serve writes to its stderr, or where the setting logFile says",
        ) from error
    except KeyboardInterrupt:
        say("")


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


def _row(directory: Path, info: RuntimeInfo | None, health: str) -> dict[str, object]:
    return {
        "dataDir": str(directory),
        "running": info is not None,
        "pid": None if info is None else info.pid,
        "serviceUrl": None if info is None else info.service_url,
        "httpUrl": None if info is None else info.http_url,
        "version": None if info is None else info.version,
        "health": health or None,
    }


def _health(directory: Path, info: RuntimeInfo) -> str:
    """The health that the broker tells, or why it tells none."""
    from broker_core.client import ClientConfig
    from broker_core.client.admin import AdminApi
    from broker_core.client.credentials.authentication import token_in

    try:
        tls = ClientConfig(service_url=info.service_url, **tls_options(info, os.environ)).tls
        token = token_in(directory)
        with AdminApi(info.http_url, timeout_s=_HEALTH_TIMEOUT_S, authentication=token, tls=tls) as admin:
            return admin.health()
    except PulsarishError as error:
        return error.message


def _tail(path: Path, lines: int | None) -> Iterator[str]:
    with _opened(path) as file:
        yield from (line.removesuffix("\n") for line in deque(file, lines))


def _followed(path: Path, lines: int | None) -> Iterator[str]:
    """The last lines, and those that come; the log begins anew in another file when it is full."""
    clock = SystemClock()
    while True:
        with _opened(path) as file:
            yield from (line.removesuffix("\n") for line in deque(file, lines))
            while True:
                is_over = not _is_at(path, file)  # before the last look at it
                yield from (line.removesuffix("\n") for line in file)
                if is_over:
                    break
                clock.sleep(_FOLLOW_S)
        lines = None


def _opened(path: Path) -> IO[str]:
    return open(path, encoding="utf-8", errors="backslashreplace", opener=private_opener)


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether ``path`` is still the name of ``file``."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return True  # between two names
