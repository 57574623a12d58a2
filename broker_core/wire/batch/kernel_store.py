# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept: next to the source like Python's own bytecode, else in the user's cache directory.

``NUMBA_CACHE_DIR`` names another place; where nothing can be written each process compiles anew, which takes seconds.
A file holds one kernel. It is used only if it was made from the same source, for the same types of arguments, the same
processor and by the same compiler, and if its own checksum holds; otherwise it is made again and replaced. Failing to
read or write one is never an error.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker_core.wire.batch.machine_code import ObjectCode, Parameter

_FORMAT: Final = b"pulsarish kernel 1\n"
_DIGEST_BYTES: Final = 32
_head: Final = struct.Struct(f"{len(_FORMAT)}s{_DIGEST_BYTES}s{_DIGEST_BYTES}sb")
"""Format, checksum of the rest, stamp of what the code was made from and for, and what the kernel returns."""


def compiling_is_off() -> bool:
    """Whether the environment asks for plain Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def find(function: Callable[..., Any], parameters: Sequence[Parameter]) -> ObjectCode | None:
    """The code of ``function``, if it was kept."""
    from broker_core.wire.batch.machine_code import ObjectCode

    for place in _places(function):
        with contextlib.suppress(OSError, struct.error):
            stamp, content = _stamp(function, tuple(parameters)), place.read_bytes()
            form, checksum, made_from, returns = _head.unpack_from(content)
            if form == _FORMAT and checksum == _checksum(content) and made_from == stamp:
                return ObjectCode(returns, content[_head.size :])
    return None


def keep(function: Callable[..., Any], parameters: Sequence[Parameter], made: ObjectCode) -> None:
    """Write ``made`` to the first place that takes it."""
    for place in _places(function):
        with contextlib.suppress(OSError):
            stamp = _stamp(function, tuple(parameters))
            unsummed = _head.pack(_FORMAT, b"", stamp, made.returns) + made.code
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_suffix(f".{os.getpid()}")
            draft.write_bytes(_head.pack(_FORMAT, _checksum(unsummed), stamp, made.returns) + made.code)
            draft.replace(place)
            return


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(memoryview(content)[len(_FORMAT) + _DIGEST_BYTES :]).digest()


def _places(function: Callable[..., Any]) -> Iterator[Path]:
    """Where the code of ``function`` may be, best first."""
    source = Path(function.__code__.co_filename)
    name = f"{source.stem}.{function.__name__}-{hashlib.sha256(_made_for().encode()).hexdigest()[:8]}.kernel"
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named, name)
        return
    yield source.parent / "__pycache__" / name
    with contextlib.suppress(RuntimeError):  # there is no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pulsarish", name)


@functools.cache
def _stamp(function: Callable[..., Any], parameters: tuple[Parameter, ...]) -> bytes:
    """What the code is made from and for. OSError if the source cannot be read."""
    source: bytes = function.__globals__["__loader__"].get_data(function.__code__.co_filename)  # also inside an archive
    return hashlib.sha256(b"\0".join((source, repr(parameters).encode(), _made_for().encode()))).digest()


@functools.cache
def _made_for() -> str:
    from broker_core.wire.batch.machine_code import host

    return f"{host()}, bounds checks {os.environ.get('NUMBA_BOUNDSCHECK', '0')}"
