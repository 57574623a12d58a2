# SPDX-License-Identifier: Apache-2.0
"""``@kernel`` and ``@helper`` mark the short loops over bytes that get compiled; how is decided here, at a first call.

A kernel takes C-contiguous numpy arrays and integers, always of the same types, and returns nothing, an integer or a
tuple of integers. It allocates nothing, never raises, and calls helpers of its own file only, because what was
compiled is found again by the bytes of that file. Arithmetic is on np.int64 throughout, so that the same source runs
uncompiled where numba cannot be installed, just slowly; ``NUMBA_DISABLE_JIT=1`` asks for that.

numba compiles (``kernel_compiler``) once on a machine; what comes out is kept on disk (``kernel_store``), and from then
on a process loads it without numba (``machine_code``): the first call of a kernel costs milliseconds. Through numba's
own cache it took half a second of processor time, which every cold worker of Spark paid.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, TypeVar, cast

import numpy as np

from broker_core.wire.batch import kernel_store

_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILED: Final = not kernel_store.compiling_is_off() and find_spec("numba") is not None
"""Whether kernels are machine code in this process."""

int64: Final[Any] = np.int64
"""For kernels: widens what is read from an array. Untyped, for kernels take int and int64 alike."""

ZERO: Final[Any] = np.int64(0)
"""For kernels: a plain 0 would be a type of its own to the compiler, and every helper compiled twice."""

_helpers: Final[set[Callable[..., Any]]] = set()


class Kernel:
    """A function that is machine code from its first call on. It runs without holding the interpreter lock."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self.plain = plain
        """The function as it is written."""
        self._native: Callable[..., Any] | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the machine code is in memory, so that the next call is quick."""
        return self._native is not None

    def __call__(self, *arguments: Any) -> Any:
        if self._native is None:
            self._native = _native(self.plain, arguments)
        return self._native(*arguments)


def kernel(function: _Function) -> _Function:
    """Compile ``function`` at its first call, or load what was compiled before."""
    return cast("_Function", Kernel(function)) if COMPILED else function


def helper(function: _Function) -> _Function:
    """Compile ``function`` as a part of the kernels that call it."""
    _helpers.add(function)
    return function


def uncompiled(function: _Function) -> _Function:
    """The plain Python function behind a kernel, for tests that check every array index."""
    return cast("_Function", function.plain) if isinstance(function, Kernel) else function


def _native(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    from broker_core.wire.batch import machine_code

    parameters = machine_code.parameters_of(arguments)
    code = kernel_store.find(function, parameters)
    if code is None:
        from broker_core.wire.batch.kernel_compiler import CallingConventionError, compile_kernel, through_numba

        try:
            code = compile_kernel(function, _helpers, parameters)
        except CallingConventionError:
            return through_numba(function, _helpers)
        kernel_store.keep(function, parameters, code)
    return machine_code.load(code, function.__name__, parameters)
