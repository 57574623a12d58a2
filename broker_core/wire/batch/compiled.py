# SPDX-License-Identifier: Apache-2.0
"""The one place that knows numba: ``@kernel`` and ``@helper`` mark the short loops over bytes that get compiled.

A kernel takes and returns numpy arrays and integers, allocates nothing, never raises, and calls helpers of its own
file only: numba's cache notices a change of the file that defines a kernel, not of those it calls into. Arithmetic is
on np.int64 throughout, so that the same source runs uncompiled where numba cannot be installed, just slowly.

Reference counting of arrays is switched off for kernels: they only borrow what the caller holds, and counting at every
call of a helper made them three times slower.

The compiled code is kept next to the source, else (read-only installation) in the user's cache directory, else in
``NUMBA_CACHE_DIR`` if that is set; where nothing can be written each process compiles anew, which takes seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _find_numba() -> Any:
    try:
        return importlib.import_module("numba")
    except ImportError:
        return None


_numba: Final = _find_numba()

COMPILED: Final = _numba is not None
"""Whether kernels are machine code in this process."""


int64: Final[Any] = np.int64
"""For kernels: widens what is read from an array. Untyped, for kernels take int and int64 alike."""

ZERO: Final[Any] = np.int64(0)
"""For kernels: a plain 0 would be a type of its own to the compiler, and every helper compiled twice."""


def kernel(function: _Function) -> _Function:
    """Compile ``function`` at its first call with given types. It runs without holding the interpreter lock."""
    return _compile(function, inline=False)


def helper(function: _Function) -> _Function:
    """Compile ``function`` as a part of the kernels that call it."""
    return _compile(function, inline=True)


def uncompiled(function: _Function) -> _Function:
    """The plain Python function behind a kernel, for tests that check every array index."""
    plain: _Function = getattr(function, "py_func", function)
    return plain


def _compile(function: _Function, *, inline: bool) -> _Function:
    if not COMPILED:
        return function
    options = {"nogil": True, "error_model": "numpy", "forceinline": inline, "_nrt": False}
    try:
        compiled: _Function = _numba.njit(cache=True, **options)(function)
    except RuntimeError:  # there is no place for the cache
        compiled = _numba.njit(**options)(function)
    return compiled
