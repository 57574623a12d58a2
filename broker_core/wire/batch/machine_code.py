# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels in memory: object code is linked by llvmlite, which numba brings along, and called through ctypes.

Owns the calling convention, which is numba's for functions without Python objects: a pointer to what is returned, a
pointer for exceptions, then for each array two pointers of its owner (null: kernels only borrow), the number of
elements, bytes of one, the data, shape and strides, and for each integer itself. ``kernel_compiler`` refuses code that
was made for another. A wrong type would read memory that is not ours, so the types of every call are checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np
import pyarrow as pa

ENTRY_POINT: Final = "kernel"
"""The name of the one function in object code."""

ONE_NUMBER: Final = -1
"""``ObjectCode.returns`` of a kernel that returns an integer and not a tuple."""

POINTER: Final = "ptr"
_NUMBER: Final = "i64"
_C_TYPES: Final = {POINTER: ctypes.c_void_p, _NUMBER: ctypes.c_int64}


class Parameter(NamedTuple):
    """The type of one argument: of an array its element type and dimensions; an integer has neither."""

    element: str = ""
    dimensions: int = 0

    @property
    def llvm_types(self) -> list[str]:
        """What it becomes in machine code."""
        if not self.element:
            return [_NUMBER]
        return [POINTER, POINTER, _NUMBER, _NUMBER, POINTER, *[_NUMBER] * (2 * self.dimensions)]


class ObjectCode(NamedTuple):
    """One compiled kernel, and how many integers the tuple has that it returns (0: it returns nothing)."""

    returns: int
    code: bytes


def parameters_of(arguments: Sequence[Any]) -> tuple[Parameter, ...]:
    """The types of a call."""
    return tuple(
        Parameter(each.dtype.str, each.ndim) if isinstance(each, np.ndarray) else Parameter() for each in arguments
    )


def llvm_types(parameters: Sequence[Parameter]) -> list[str]:
    """The types of all arguments of the machine code, in order."""
    return [POINTER, POINTER, *(name for parameter in parameters for name in parameter.llvm_types)]


def host() -> str:
    """What code is compiled for, and by which compiler: it runs where this is the same."""
    return f"llvmlite {llvmlite.__version__}, {llvm.get_host_cpu_name()} {host_features()}"


def host_features() -> str:
    """The abilities of this processor, as the compiler names them."""
    flattened: str = llvm.get_host_cpu_features().flatten()
    return flattened


def target_machine() -> Any:
    """A code generator for this machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(llvm.get_host_cpu_name(), host_features(), opt=3, jit=True)


def load(code: ObjectCode, name: str, parameters: Sequence[Parameter]) -> Callable[..., Any]:
    """Make ``code`` callable. The callable keeps it in memory."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.code))
    engine.finalize_object()
    types = [_C_TYPES[each] for each in llvm_types(parameters)]
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(engine.get_function_address(ENTRY_POINT))
    return _Loaded(name, engine, entry, tuple(parameters), code.returns)


class _Loaded:
    """A kernel in memory."""

    __slots__ = ("_engine", "_entry", "_expected", "_name", "_results", "_returns")

    def __init__(
        self, name: str, engine: Any, entry: Callable[..., int], parameters: tuple[Parameter, ...], returns: int
    ) -> None:
        self._name = name
        self._engine = engine  # owns the memory that ``_entry`` points into
        self._entry = entry
        self._expected = [(np.dtype(each.element) if each.element else None, each.dimensions) for each in parameters]
        self._returns = returns
        self._results = ctypes.c_int64 * max(abs(returns), 1)

    def __call__(self, *arguments: Any) -> Any:
        results = self._results()
        raised = ctypes.c_void_p()  # kernels raise nothing, except where they were compiled to check their indexes
        passed: list[int | None] = [ctypes.addressof(results), ctypes.addressof(raised)]
        for (element, dimensions), given in zip(self._expected, arguments, strict=True):
            if element is None:
                passed.append(int(given))
                continue
            if given.dtype != element or given.ndim != dimensions or not given.flags.c_contiguous:
                raise TypeError(f"kernel {self._name} takes {dimensions}-dimensional {element}, not {given.dtype}")
            address = pa.py_buffer(given).address  # in a fifth of the time of given.ctypes
            passed += (None, None, given.size, given.itemsize, address, *given.shape, *given.strides)
        if status := self._entry(*passed):
            raise SystemError(f"kernel {self._name} ended with status {status}")
        if self._returns > 0:
            return tuple(results)
        return results[0] if self._returns == ONE_NUMBER else None
