# SPDX-License-Identifier: Apache-2.0
"""``pulsarish serve``: one broker process on one data directory.

Programs start it and wait for its only line on stdout, ``ready <service url> <http url>``, and behind them the URLs of
ports with TLS where it has both kinds; what people want to know goes to stderr. SIGTERM or Ctrl-C stops it in order;
killing it loses nothing that was confirmed.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker_core.base.errors import PulsarishError, UsageError
from broker_core.cli.output import say
from broker_core.cli.parameter_types import WholeNumber
from broker_core.cli.service_manager import tell_ready
from broker_core.cli.target import data_dir_option, directory_or_default

if TYPE_CHECKING:
    from broker_core.base.settings import Settings


def settings_options(command: click.decorators.FC) -> click.decorators.FC:
    """``--config`` and ``--set``, for every command that reads the broker's settings."""
    command = click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="One setting, by Pulsar's name; may be repeated. See: pulsarish config show",
    )(command)
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A TOML file of settings.",
    )(command)


def _port_option(name: str, default: int, protocol: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    text = f"Port of {protocol}; 0 takes any free one, -1 none (for a broker with TLS only)."
    return click.option(
        name, metavar="PORT", type=click.IntRange(-1, 65535), default=default, show_default=True, help=text
    )


@click.command()
@data_dir_option("Where the data lies; made if it is missing.")
@_port_option("--port", 6650, "Pulsar's protocol")
@_port_option("--http-port", 8080, "the admin REST")
@click.option(
    "--durability",
    type=click.Choice(["sync", "async"]),
    help="sync: confirmed means on disk. async: up to a second of confirmed data may be lost.",
)
@click.option(
    "--idle-stop",
    type=WholeNumber(0),
    metavar="SECONDS",
    help="Stop after this long without a connection. [default: never]",
)
@click.option(
    "--stop-with-stdin",
    is_flag=True,
    help="Stop when standard input ends: a pipe does when the program that started the broker is gone, even if killed.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Listen at this address, for other machines too; clients must show who they are. [default: 127.0.0.1]",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Let in every user of this machine, who may then do everything. [default: who can read the data directory]",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="What is said on stderr: this and all above. [default: info]",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Lines of text, or of JSON. [default: text]")
@settings_options
def serve(
    data_dir: Path | None,
    port: int,
    http_port: int,
    durability: str | None,
    idle_stop: int | None,
    stop_with_stdin: bool,
    host: str | None,
    is_open: bool,
    log_level: str | None,
    log_format: str | None,
    assignments: tuple[str, ...],
    config_file: Path | None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    from broker_core.base.runtime import RuntimeInfo
    from broker_core.cli.settings_sources import resolve
    from broker_core.server import process

    if port == http_port > 0:
        raise UsageError(f"--port and --http-port are both {port}", hint="choose two, or 0 for any free one")
    options = {
        "durability": durability,
        "idleStopSeconds": None if idle_stop is None else str(idle_stop),
        "bindAddress": host,
        "openToLocalUsers": "true" if is_open else None,
        "logLevel": log_level,
        "logFormat": log_format,
    }
    resolved = resolve(
        file=config_file,
        env=os.environ,
        assignments=assignments,
        options={name: value for name, value in options.items() if value is not None},
    )
    directory = directory_or_default(data_dir, os.environ)

    def announce(info: RuntimeInfo) -> None:
        click.echo(f"ready {' '.join(info.urls)}")
        sys.stdout.flush()
        tell_ready(os.environ)
        if sys.stderr.isatty():
            _greet(directory, resolved.settings, info.service_url)

    try:
        settings = resolved.settings
        for wanted in (port, http_port, settings.broker_service_port_tls, settings.web_service_port_tls):
            _check_free(settings.bind_address, wanted)
        process.serve(
            settings,
            data_dir=directory,
            port=port,
            http_port=http_port,
            on_ready=announce,
            stops_with_stdin=stop_with_stdin,
        )
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise _no_port(f"the broker cannot take its ports: {error.strerror}") from error


def _check_free(address: str, port: int) -> None:
    """PulsarishError, before anything is opened, if ``port`` is taken: it says by whom, as far as that is known."""
    import socket

    if port <= 0:
        return
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does, whose port may have been used
        try:
            trial.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            owner = port_owner(port)
            raise _no_port(f"port {port} is taken{f': {owner} listens there' if owner else ''}") from error


def _no_port(what: str) -> PulsarishError:
    return PulsarishError(
        what,
        hint="choose others with --port and --http-port (--port 0 takes any free one), or of those with TLS by "
        "brokerServicePortTls and webServicePortTls",
    )


def _greet(directory: Path, settings: Settings, url: str) -> None:
    from broker_core.server.security.reach import is_open

    say(f"data        {directory}")
    say(f"durability  {settings.durability}" + (" (confirmed means on disk)" if settings.durability == "sync" else ""))
    if is_open(settings):
        say("open        whoever reaches the ports may read, write and delete everything")
    else:
        say("closed      programs of this user are let in; others need a token: pulsarish token show")
    say(f"try         pulsarish produce hello -m hi --url {url}")
    say(f"            pulsarish consume hello --exit --url {url}")
    say("stop        Ctrl-C; it is safe, and so is killing it")


# -- the process that has a port, as far as Linux tells its user

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"
_SOCKET: Final = "socket:["
_SHOWN_MAX: Final = 100
"""Characters of a command line."""


def port_owner(port: int) -> str:
    """``process 12 (python -m ...)``, or whose process it is if its name is not to be had; "": nothing is known."""
    sockets = dict(_listening(port))
    for directory in Path("/proc").glob("[0-9]*"):
        if sockets.keys() & _sockets_of(directory):
            return f"process {directory.name} ({_command_of(directory)})"
    return next((f"a process of user {_user_name(uid)}" for uid in sockets.values()), "")


def _listening(port: int) -> Iterator[tuple[str, int]]:
    """Inode and user of each socket that listens on ``port``."""
    for table in _TABLES:
        for line in _text(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9], int(fields[7])


def _sockets_of(process: Path) -> set[str]:
    """Inodes of the sockets that a process has open; none if this user may not know."""
    found = set()
    with suppress(OSError):  # It is another user's, or gone.
        for number in os.listdir(process / "fd"):
            with suppress(FileNotFoundError):  # It was closed meanwhile.
                found.add(os.readlink(process / "fd" / number))
    return {each[len(_SOCKET) : -1] for each in found if each.startswith(_SOCKET)}


def _command_of(process: Path) -> str:
    words = _text(process / "cmdline").replace("\0", " ").strip() or _text(process / "comm").strip()
    return words if len(words) <= _SHOWN_MAX else f"{words[:_SHOWN_MAX]}..."


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "backslashreplace")
    except OSError:
        return ""
