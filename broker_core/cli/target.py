# SPDX-License-Identifier: Apache-2.0
"""Which broker a command talks to, and the options that say so.

In this order: ``--url``, ``--data-dir``, ``PULSARISH_SERVICE_URL``, and at last the broker of the default data
directory, which left its addresses in ``broker.json`` there. Whoever names a broker on the command line means no other:
the environment adds nothing to it, and an address that is empty is an error.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from broker_core.base.errors import ConfigError, ConnectionLostError
from broker_core.cli.seconds import SPAN_MIN_S, Seconds

if TYPE_CHECKING:
    from broker_core.base.runtime import RuntimeInfo
    from broker_core.client import Client
    from broker_core.client.admin import AdminApi

HTTP_PORT_DEFAULT: Final = 8080
"""Where Pulsar serves its admin REST; the binary protocol has no way to ask."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Target:
    """One broker: both its addresses, and how long to wait for an answer."""

    service_url: str
    http_url: str
    timeout_s: float

    def client(self) -> Client:
        """A client of this broker; use it as a context manager."""
        from broker_core.cli.connection_news import ConnectionNews
        from broker_core.client import Client

        ConnectionNews().listen()
        return Client(self.service_url, operation_timeout_s=self.timeout_s)

    def admin(self) -> AdminApi:
        """The admin REST of this broker; use it as a context manager."""
        from broker_core.client.admin import AdminApi

        return AdminApi(self.http_url, timeout_s=self.timeout_s)


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options that choose a broker, and the chosen Target as its first argument."""

    @click.option("--url", metavar="URL", help="Service URL. [default: $PULSARISH_SERVICE_URL, or see --data-dir]")
    @click.option(
        "--http-url",
        metavar="URL",
        help="Admin URL. [default: of the broker found, or port 8080 of --url; $PULSARISH_HTTP_URL where neither --url "
        "nor --data-dir is given]",
    )
    @data_dir_option("Talk to the broker that runs on this directory.")
    @click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(SPAN_MIN_S),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for an answer.",
    )
    @functools.wraps(command)
    def with_target(
        *, url: str | None, http_url: str | None, data_dir: Path | None, timeout_s: float, **parameters: Any
    ) -> R:
        return command(find_target(url, http_url, data_dir, timeout_s, os.environ), **parameters)

    return with_target


class _Directory(click.Path):
    """An empty name is the working directory for Python, and a variable that is not set for whoever wrote it."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not value:
            self.fail("It is empty.", param, ctx)
        try:
            os.fsdecode(value).encode()
        except UnicodeEncodeError:  # SQLite could not open the catalogue in it.
            self.fail(f"{value!r} is not UTF-8.", param, ctx)
        return super().convert(value, param, ctx)


def data_dir_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--data-dir`` with its help; None if it is not given."""
    return click.option(
        "--data-dir",
        metavar="DIRECTORY",
        type=_Directory(file_okay=False, path_type=Path),
        help=f"{text} [default: $PULSARISH_DATA_DIR, or pulsarish in the user's data home]",
    )


def find_target(
    url: str | None, http_url: str | None, data_dir: Path | None, timeout_s: float, env: Mapping[str, str]
) -> Target:
    """Resolve the options against the environment. ConnectionLostError if no broker is known at all."""
    from broker_core.base.runtime import ENV_HTTP_URL, ENV_SERVICE_URL

    for option, given in (("--url", url), ("--http-url", http_url)):
        if given == "":
            raise ConfigError(f"{option} is empty", hint="write an address, or leave it out to use the default broker")
    if url and data_dir:
        raise ConfigError("--url and --data-dir both name a broker", hint="give one of them")
    if not url and not data_dir:
        url, http_url = env.get(ENV_SERVICE_URL), http_url or env.get(ENV_HTTP_URL)
    if url:
        return Target(_checked(url), http_url or _http_url_beside(url), timeout_s)
    info = running_broker(directory_or_default(data_dir, env))
    return Target(info.service_url, http_url or info.http_url, timeout_s)


def directory_or_default(data_dir: Path | None, env: Mapping[str, str]) -> Path:
    """The named directory, or the default one. Shells leave the ``~`` of ``--data-dir=~/pulsar`` to us."""
    from broker_core.base.runtime import default_data_dir

    return Path(os.path.expanduser(data_dir or default_data_dir(env)))


def running_broker(data_dir: Path) -> RuntimeInfo:
    """What the broker of ``data_dir`` left there; ConnectionLostError if none runs."""
    from broker_core.base.private_files import private_opener
    from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo

    try:
        with open(data_dir / RUNTIME_FILE, "rb", opener=private_opener) as file:
            info = RuntimeInfo.read(file)
    except OSError:
        info = None
    if info is None:
        raise ConnectionLostError(
            f'no broker runs on "{data_dir}": its {RUNTIME_FILE} is missing, damaged or another directory\'s',
            hint=f'start one with: pulsarish serve --data-dir "{data_dir}" (or name another broker with --url)',
        )
    return info


def _checked(url: str) -> str:
    if urlsplit(url.split(",")[0]).scheme not in ("pulsar", "pulsar+ssl"):
        raise ConfigError(f'"{url}" is not a service URL', hint="write pulsar://HOST:PORT")
    if url.startswith("pulsar:"):
        from broker_core.client.connecting.service_url import parse_service_url

        parse_service_url(url)
    return url


def _http_url_beside(url: str) -> str:
    host = urlsplit(url.split(",")[0]).hostname or "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{HTTP_PORT_DEFAULT}"
