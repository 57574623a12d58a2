# SPDX-License-Identifier: Apache-2.0
"""``pulsarish keys``: new keys to sign tokens with. Nothing of it needs a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from broker_core.base.errors import ExistsError
from broker_core.base.private_files import private_opener
from broker_core.cli.output import say

SECRET_ALGORITHM: Final = "HS256"  # noqa: S105 - the name of an algorithm
PAIR_ALGORITHMS: Final = ("RS256", "ES256", "ES384", "ES512")

_PUBLIC_SUFFIX: Final = ".pub"


@click.group()
def keys() -> None:
    """Create keys that sign and verify tokens."""


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--algorithm",
    type=click.Choice([SECRET_ALGORITHM, *PAIR_ALGORITHMS]),
    default=SECRET_ALGORITHM,
    show_default=True,
    help="HS256: one secret that signs and verifies. The others: a private key that signs, and FILE.pub that verifies.",
)
def create(file: Path, algorithm: str) -> None:
    """Write a new key to FILE, readable by its owner only. A file that is there is never overwritten.

    A secret has 256 random bits. An RSA or EC key is written in DER, as Apache Pulsar reads it; the broker needs the
    public one only, so whoever has a copy of the broker's files can sign no token.
    """
    from broker_core.server.security import token_keys

    public = file.with_name(file.name + _PUBLIC_SUFFIX)
    if algorithm == SECRET_ALGORITHM:
        _write_new({file: token_keys.new_secret()})
        key = f"tokenSecretKey={_url(file)}"
    else:
        private_bytes, public_bytes = token_keys.new_pair(algorithm)
        _write_new({file: private_bytes, public: public_bytes})
        key = f"tokenPublicKey={_url(public)} --set tokenPublicAlg={algorithm}"
    say(f"broker      pulsarish serve --set authenticationEnabled=true --set {key}")
    say(f"tokens      pulsarish token create --subject NAME --expires 30d --key {file}")


def _write_new(contents: dict[Path, bytes]) -> None:
    for path in contents:
        if os.path.lexists(path):
            raise ExistsError(f"{path} exists, and a key that is lost cannot be made again", hint="choose another name")
    for path, content in contents.items():
        with open(path, "xb", opener=private_opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _url(path: Path) -> str:
    return path.absolute().as_uri()
