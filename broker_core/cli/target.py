# SPDX-License-Identifier: Apache-2.0
"""Which broker a command talks to, and the options that say so.

In this order: ``--url``, ``--data-dir``, ``PULSARISH_SERVICE_URL``, and at last the broker of the default data
directory, which left its addresses in ``broker.json`` there. Whoever names a broker on the command line means no other:
the environment adds nothing to it, and an address that is empty is an error.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from broker_core.base.errors import ConfigError, ConnectionLostError
from broker_core.cli.parameter_types import SPAN_MIN_S, Seconds

if TYPE_CHECKING:
    from broker_core.base.names import NamespaceName
    from broker_core.base.runtime import RuntimeInfo
    from broker_core.client import Client
    from broker_core.client.admin import AdminApi

HTTP_PORT_DEFAULT: Final = 8080
"""Where Pulsar serves its admin REST; the binary protocol has no way to ask, so the one found there is checked."""

SECURITY_OPTIONS: Final = {
    "tokenFile": "File with the token that says who you are.",
    "authPluginClassName": "Another way to say it: token, tls, basic, oauth2, or the name of the Java client's class.",
    "authParams": "Its parameters, as for the Java client. Other users see command lines: name files in it.",
    "tlsTrustCertsFilePath": "PEM file of the CAs to believe, with pulsar+ssl:// and https://. [default: the system's]",
    "tlsCertificateFilePath": "PEM file of your own certificate.",
    "tlsKeyFilePath": "PEM file of its private key.",
    "tlsHostnameVerificationEnable": "Whether a certificate must be for the name that was called. [default: true]",
    "tlsAllowInsecureConnection": "Dangerous: true talks to whoever answers. [default: false]",
}
"""The options by their names in ``broker_core.client.credentials.security``, which commands import only when they run.
A test compares both lists. A token itself is given by the environment or a file, as other users of the machine see
arguments."""

HTTPS_PORT_DEFAULT: Final = 8443
"""Likewise, with TLS."""

R = TypeVar("R")


class Admin(Enum):
    """How the admin address was found."""

    NAMED = "the user gave it"
    TOLD = "the broker left it in its data directory, which it has still locked, beside its service URL"
    GUESSED = "it may be there"


@dataclass(frozen=True, slots=True)
class Target:
    """One broker: both its addresses, how long to wait for an answer, who asks."""

    service_url: str
    http_url: str
    admin_is: Admin
    timeout_s: float
    security: Mapping[str, Any]
    """The arguments of a client that say who it is and whom it believes."""

    def client(self) -> Client:
        """A client of this broker; use it as a context manager."""
        from broker_core.cli.connection_watch import ConnectionWatch
        from broker_core.client import Client

        ConnectionWatch().listen()
        return Client(self.service_url, operation_timeout_s=self.timeout_s, **self.security)

    def admin(self, namespace: NamespaceName | None = None) -> AdminApi:
        """The admin REST of this broker; use it as a context manager. ``namespace``: what it will be asked about.

        ConnectionLostError if nobody listens at a service URL that the user named, ConfigError if another broker, or
        nobody knows which one, answers at an admin address that is a guess.
        """
        from broker_core.client import ClientConfig
        from broker_core.client.admin import AdminApi

        config = ClientConfig(service_url=self.service_url, **self.security)
        admin = AdminApi(
            self.http_url,
            timeout_s=self.timeout_s,
            authentication=config.identity,
            tls=config.tls,
            given_by="--http-url",
        )
        if self.admin_is is not Admin.TOLD:
            from broker_core.cli.one_broker import check_broker

            with contextlib.ExitStack() as if_it_fails:
                if_it_fails.enter_context(admin)
                with self.client() as client:
                    check_broker(client, None if self.admin_is is Admin.NAMED else admin, self.http_url, namespace)
                if_it_fails.pop_all()
        return admin


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options that choose a broker, and the chosen Target as its first argument."""

    @click.option(
        "--url",
        "--service-url",
        "url",
        metavar="URL",
        help="Service URL. [default: $PULSARISH_SERVICE_URL, or see --data-dir]",
    )
    @click.option(
        "--http-url",
        metavar="URL",
        help="Admin URL. [default: of the broker found, or port 8080 of --url if the same broker answers there; "
        "$PULSARISH_HTTP_URL where neither --url nor --data-dir is given]",
    )
    @data_dir_option("Talk to the broker that runs on this directory.")
    @timeout_option("How long to wait for an answer.")
    @_security_options
    @functools.wraps(command)
    def with_target(
        *, url: str | None, http_url: str | None, data_dir: Path | None, timeout_s: float, **parameters: Any
    ) -> R:
        given = {name: text for name in SECURITY_OPTIONS if (text := parameters.pop(_field(name)))}
        return command(find_target(url, http_url, data_dir, timeout_s, os.environ, given), **parameters)

    return with_target


def _security_options(command: Callable[..., R]) -> Callable[..., R]:
    for name, help_text in reversed(SECURITY_OPTIONS.items()):
        command = click.option(f"--{_field(name).replace('_', '-')}", _field(name), metavar="TEXT", help=help_text)(
            command
        )
    return command


def _field(name: str) -> str:
    """``tls_key_file_path`` for ``tlsKeyFilePath``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


class _Directory(click.Path):
    """An empty name is the working directory for Python, and a variable that is not set for whoever wrote it."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not value:
            self.fail("It is empty.", param, ctx)
        try:
            os.fsdecode(value).encode()
        except UnicodeEncodeError:  # broker.json and the log, which name it, are UTF-8
            self.fail(f"{value!r} is not UTF-8.", param, ctx)
        from broker_core.base.runtime import checked_data_dir

        return super().convert(checked_data_dir(os.fsdecode(value)), param, ctx)


def data_dir_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--data-dir`` with its help; None if it is not given."""
    return click.option(
        "--data-dir",
        metavar="DIRECTORY",
        type=_Directory(file_okay=False, path_type=Path),
        help=f"{text} [default: $PULSARISH_DATA_DIR, or pulsarish in the user's data home]",
    )


def timeout_option(text: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """``--timeout`` with its help."""
    kind = Seconds(SPAN_MIN_S)
    return click.option(
        "--timeout", "timeout_s", type=kind, default=30.0, show_default=True, metavar="SECONDS", help=text
    )


def find_target(
    url: str | None,
    http_url: str | None,
    data_dir: Path | None,
    timeout_s: float,
    env: Mapping[str, str],
    security: Mapping[str, str] | None = None,
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
        chosen = _security(env, security or {})
        admin_is = Admin.NAMED if http_url else Admin.GUESSED
        return Target(_checked(url), http_url or _guessed_http_url(url, env), admin_is, timeout_s, chosen)
    from broker_core.client.credentials.authentication import token_in

    directory = directory_or_default(data_dir, env)
    info = running_broker(directory)
    named = _security({}, security or {})["authentication"]
    chosen = {"authentication": named or token_in(directory), **tls_options(info, env, security)}
    return Target(info.service_url, http_url or info.http_url, Admin.TOLD, timeout_s, chosen)


def _security(env: Mapping[str, str], given: Mapping[str, str]) -> dict[str, Any]:
    from broker_core.client.credentials.security import Security, security_texts

    return Security.of(security_texts(env, given)).client_options()


def tls_options(info: RuntimeInfo, env: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The arguments of a client that say whom it believes; none where the broker of ``info`` needs no TLS."""
    if not info.service_url.startswith("pulsar+ssl:") and not info.http_url.startswith("https:"):
        return {}
    return {name: value for name, value in _security(env, given or {}).items() if name.startswith("tls_")}


def directory_or_default(data_dir: Path | None, env: Mapping[str, str]) -> Path:
    """The named directory, or the default one. Shells leave the ``~`` of ``--data-dir=~/pulsar`` to us."""
    from broker_core.base.runtime import default_data_dir

    return Path(os.path.expanduser(data_dir or default_data_dir(env)))


def running_broker(data_dir: Path) -> RuntimeInfo:
    """The addresses that the broker of ``data_dir`` left there; ConnectionLostError if none runs.

    A broker that was killed left it too, and another one may have its ports by now: a living one has its lock.
    """
    from broker_core.base.private_files import private_opener
    from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo, has_directory

    why = f"its {RUNTIME_FILE} is missing, damaged or another directory's"
    try:
        with open(data_dir / RUNTIME_FILE, "rb", opener=private_opener) as file:
            info = RuntimeInfo.read(file)
        if info is not None and not has_directory(info, data_dir):
            why = f"its {RUNTIME_FILE} is of process {info.pid}, which does not have it any more"
            info = None
    except OSError:
        info = None
    if info is None:
        raise ConnectionLostError(
            f'no broker runs on "{data_dir}": {why}',
            hint=f'start one with: pulsarish serve --data-dir "{data_dir}" (or name another broker with --url)',
        )
    return info


def _checked(url: str) -> str:
    from broker_core.client.connecting.service_url import parse_service_url

    parse_service_url(url)
    return url


def _guessed_http_url(url: str, env: Mapping[str, str]) -> str:
    """Where the admin REST of the broker at ``url`` may be: what a broker at that address left in the default data
    directory, else the usual port."""
    with contextlib.suppress(ConnectionLostError, ConfigError):
        info = running_broker(directory_or_default(None, env))
        if url.rstrip("/") == info.service_url:
            return info.http_url
        if url.rstrip("/") == info.service_url_tls:
            return info.http_url_tls or info.http_url
    parts = urlsplit(url.split(",")[0])
    host = parts.hostname or "127.0.0.1"
    scheme, port = ("https", HTTPS_PORT_DEFAULT) if parts.scheme == "pulsar+ssl" else ("http", HTTP_PORT_DEFAULT)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
