# SPDX-License-Identifier: Apache-2.0
"""``pulsarish token``: tokens (JWT) signed, inspected and verified; the token of a data directory.

A token is data, so it goes to stdout; it is never an argument, which other users of the machine can read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from broker_core.base.clock import SystemClock
from broker_core.base.errors import AuthenticationError, ConfigError, NotAllowedError, PulsarishError, UsageError
from broker_core.base.moments import time_text
from broker_core.cli.output import Format, format_option, print_rows, say
from broker_core.cli.parameter_types import Seconds
from broker_core.cli.target import data_dir_option, directory_or_default

if TYPE_CHECKING:
    from broker_core.server.security.token_keys import SigningKey, TokenKey

_KEY: Final = "--key"

_EXPIRY_MIN_S: Final = 1.0

_TIME_S_MAX: Final = 1e11
"""No time of a token is so far away."""


@click.group()
def token() -> None:
    """Create, inspect and verify tokens, by which clients say who they are."""


def _token_argument(command: click.decorators.FC) -> click.decorators.FC:
    return click.argument("file", type=click.Path(allow_dash=True, dir_okay=False))(command)


def _key_option(text: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(_KEY, "key_file", metavar="FILE", required=True, type=click.Path(path_type=Path), help=text)


@token.command()
@click.option("--subject", metavar="ROLE", required=True, help="The role that the token stands for.")
@click.option(
    "--expires",
    "expires_s",
    metavar="TIME",
    type=Seconds(_EXPIRY_MIN_S),
    help="How long the token is good: a number of seconds, or with a unit: 90m, 12h, 30d. [default: for ever]",
)
@_key_option("The key that signs: a secret, or a private RSA or EC key (pulsarish keys create).")
@click.option(
    "--algorithm", metavar="NAME", help="One of the key's own: HS256, RS512, PS256. [default: the key's usual]"
)
@click.option("--audience", metavar="NAME", help="The broker that the token is for, if its tokenAudience says a name.")
def create(subject: str, expires_s: float | None, key_file: Path, algorithm: str | None, audience: str | None) -> None:
    """Print a new token.

    \b
    pulsarish token create --subject reader --expires 30d --key secret.key > reader.token
    """
    import jwt

    from broker_core.server.security.identity import AuthenticationFailedError, checked_role

    key = _signing_key(key_file)
    chosen = algorithm or key.algorithms[0]
    if chosen not in key.algorithms:
        raise UsageError(f"--algorithm {chosen} is none of the key's", hint=f"use {', '.join(key.algorithms)}")
    try:
        claims: dict[str, object] = {"sub": checked_role(subject)}
    except AuthenticationFailedError as error:
        raise UsageError(f"--subject cannot be a role: {error}", hint="choose another name") from None
    now_s = SystemClock().now_ms() // 1000
    claims["iat"] = now_s
    if expires_s is not None:
        claims["exp"] = now_s + int(expires_s)
    else:
        say("warning: this token never expires; it is good until the key is changed (--expires 30d)")
    if audience:
        claims["aud"] = audience
    click.echo(jwt.encode(claims, key.key, algorithm=chosen))


@token.command()
@data_dir_option("Whose token.")
def show(data_dir: Path | None) -> None:
    """Print the token of a data directory, by which clients of other makers are let in as its owner.

    Programs of Pulsarish find it by themselves. Who has it may do everything, so give it to nobody else.
    """
    from broker_core.base.local_access import TOKEN_FILE, token_of

    directory = directory_or_default(data_dir, os.environ)
    try:
        token = token_of(directory)
    except OSError as error:
        raise NotAllowedError(f"{directory / TOKEN_FILE} cannot be read: {error.strerror}") from error
    if token is None:
        raise ConfigError(
            f"{directory} has no token",
            hint="a broker makes one there when it first starts, unless it is open (serve --open)",
        )
    click.echo(token.reveal())


@token.command()
@_token_argument
@format_option
def inspect(file: str, output: Format | None) -> None:
    """Print what the token of FILE (- for standard input) says, without verifying it.

    Its signature is left out: what is printed lets nobody in.
    """
    import jwt

    try:
        found = jwt.decode_complete(_token_text(file), options={"verify_signature": False})
    except jwt.InvalidTokenError as error:
        raise UsageError("this is no token: " + type(error).__name__, hint="it has three parts with dots") from None
    header, claims = found["header"], found["payload"]
    print_rows(
        [
            {
                "subject": claims.get("sub"),
                "algorithm": header.get("alg"),
                "expires": _expiry_text(claims.get("exp")),
                "header": header,
                "claims": claims,
            }
        ],
        output,
    )


@token.command()
@_token_argument
@_key_option("The key that verifies: the secret, or the public key.")
@click.option("--audience", metavar="NAME", default="", help="The broker that it must be for (claim aud).")
@format_option
def validate(file: str, key_file: Path, audience: str, output: Format | None) -> None:
    """Verify the token of FILE (- for standard input) as a broker would; exit code 4 if it is not good."""
    from broker_core.server.security.identity import AuthenticationFailedError, Credentials
    from broker_core.server.security.tokens import TokenProvider, TokenRules

    rules = TokenRules(audience_claim="aud" if audience else "", audience=audience)
    provider = TokenProvider(_verifying_key(key_file), rules, SystemClock())
    try:
        identity = provider.identify(Credentials("token", _token_text(file).encode()))
    except AuthenticationFailedError as error:
        raise AuthenticationError(str(error)) from None
    print_rows([{"subject": identity.role, "expires": _expiry_text(identity.expires_s)}], output)


def _signing_key(path: Path) -> SigningKey:
    from broker_core.server.security import token_keys
    from broker_core.server.security.key_material import read_private

    return token_keys.signing_key(_KEY, read_private(_KEY, path))


def _verifying_key(path: Path) -> TokenKey:
    """The key of ``path``; of a private key its public half. Only a public key may be readable by all."""
    from broker_core.server.security import token_keys
    from broker_core.server.security.key_material import read_private

    content = read_private(_KEY, path, is_secret=False)
    try:
        return token_keys.public_key(_KEY, content)
    except PulsarishError:
        return token_keys.verifying(_signing_key(path))


def _token_text(file: str) -> str:
    from broker_core.client.credentials.authentication import read_file

    return sys.stdin.read().strip() if file == "-" else read_file(file, "the token").reveal().strip()


def _expiry_text(expires_s: object) -> str | None:
    """The time of a claim; what is no time as it is."""
    if isinstance(expires_s, bool) or not isinstance(expires_s, int | float) or not abs(expires_s) < _TIME_S_MAX:
        return None if expires_s is None else str(expires_s)
    return time_text(round(expires_s * 1000))
