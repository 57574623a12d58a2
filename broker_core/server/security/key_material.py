# SPDX-License-Identifier: Apache-2.0
"""Keys and lists of users as settings name them: a data: URL, a file: URL, a path, or base64 text.

Owns the forms, and who else may use such a file: nobody may read a secret, nobody may write to a public key. No error
repeats a setting's text, which may be the secret itself. Knows nothing of what the bytes mean.
Source: Pulsar docs, "Security - Token authentication".
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from broker_core.base.errors import ConfigError
from broker_core.base.private_files import OTHERS

MATERIAL_BYTES_MAX: Final = 4 * 1024 * 1024
"""Ten thousand users with their hashes take a fifth of it."""

_OTHERS_WRITE: Final = 0o022


def read_material(setting: str, text: str, *, is_secret: bool = True) -> bytes:
    """The bytes that ``text``, the value of ``setting``, gives or leads to. ConfigError: it does not."""
    if text.startswith("data:"):
        return _of_data_url(setting, text)
    if (path := path_of(text)) is not None:
        return read_private(setting, path, is_secret=is_secret)
    decoded = base64_bytes(text.encode("utf-8", "replace"))
    if decoded is None or text.startswith("/"):  # a path may consist of letters of base64 only
        raise ConfigError(
            f"{setting} is neither base64 text nor the path of a file that is there",
            hint="write file:///path/of/the/file, or data:;base64, before the text",
        )
    return decoded


def path_of(text: str) -> Path | None:
    """The file that the value of a setting names; None if the value is the content itself."""
    if text.startswith("file:"):
        return Path(os.fsdecode(unquote_to_bytes(urlsplit(text.strip()).path)))
    try:
        return Path(text) if text and os.path.exists(text) else None
    except ValueError:  # a NUL in it
        return None


def read_private(setting: str, path: Path, *, is_secret: bool = True) -> bytes:
    """The content of a regular file which others may not read, or, if it is not secret, not write to.

    The file may be reached by links, as where a container's secrets are mounted.
    """
    try:
        with open(path, "rb", opener=_opener) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError(f"{setting}: {path} is not a file", hint="name the file itself")
            if mode & (OTHERS if is_secret else _OTHERS_WRITE):
                wrong, advice = ("read", "600") if is_secret else ("write to", "go-w")
                raise ConfigError(
                    f"{setting}: others than its owner may {wrong} {path} (mode {stat.S_IMODE(mode):04o})",
                    hint=f"chmod {advice} {path}",
                )
            content = file.read(MATERIAL_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{setting}: {path} cannot be read: {error.strerror or error}", hint="check the path and who owns the file"
        ) from error
    if len(content) > MATERIAL_BYTES_MAX:
        raise ConfigError(f"{setting}: {path} has more than {MATERIAL_BYTES_MAX} bytes", hint="name another file")
    return content


def base64_bytes(text: bytes) -> bytes | None:
    """Bytes of base64 text, of either alphabet, with or without padding, in any number of lines; None if it is none.

    PEM, whose dashes and words are letters of the one alphabet or the other, is none.
    """
    packed = b"".join(text.split()).rstrip(b"=")
    if packed.startswith(b"-----"):
        return None
    packed = packed.replace(b"-", b"+").replace(b"_", b"/")
    try:
        return base64.b64decode(packed + b"=" * (-len(packed) % 4), validate=True) or None
    except binascii.Error:
        return None


def _of_data_url(setting: str, text: str) -> bytes:
    head, comma, data = text.strip().partition(",")
    if not comma:
        raise ConfigError(f"{setting} is a data: URL without a comma", hint="write data:;base64,...")
    content = unquote_to_bytes(data)
    if not head.endswith(";base64"):
        return content
    if (decoded := base64_bytes(content)) is None:
        raise ConfigError(f"{setting} is a data: URL whose content is not base64", hint="write data:;base64,...")
    return decoded


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe is not waited for
