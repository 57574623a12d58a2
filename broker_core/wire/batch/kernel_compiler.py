# SPDX-License-Identifier: Apache-2.0
"""The one place that knows numba: a kernel as it is written becomes object code for this machine.

Slow, and needed once on a machine. numba gives optimised LLVM code with all helpers inside; llvmlite turns that into
an object file. What is made is checked against the calling convention of ``machine_code``, so that a numba that passes
arguments in another way is noticed here and not by wrong results; with such a one kernels are called through numba.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import FunctionType
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy as np

from broker_core.wire.batch.machine_code import (
    ENTRY_POINT,
    ONE_NUMBER,
    POINTER,
    ObjectCode,
    Parameter,
    llvm_types,
    target_machine,
)

_OPTIONS: Final = {
    "nogil": True,
    "error_model": "numpy",
    # No counting of references to arrays: kernels only borrow what the caller holds, and counting at every call of a
    # helper made them three times slower.
    "_nrt": False,
}
_BARE: Final = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_njit: Final[Any] = numba.njit  # its overloads do not know all of these options


class CallingConventionError(RuntimeError):
    """This version of numba compiles to something that we cannot call."""


def compile_kernel(
    function: Callable[..., Any], helpers: Collection[Callable[..., Any]], parameters: Sequence[Parameter]
) -> ObjectCode:
    """Compile ``function``, of which those of its module's functions that are in ``helpers`` become a part.

    Raises ``CallingConventionError`` where ``through_numba`` is the only way to call it.
    """
    signature = tuple(_numba_type(parameter) for parameter in parameters)
    compiled = _njit(signature, **_BARE)(_with_helpers(function, helpers))
    module = llvm.parse_assembly(compiled.inspect_llvm(signature))
    _entry_point(module, function.__name__, parameters).name = ENTRY_POINT
    returns = _returns(compiled.nopython_signatures[0].return_type)
    return ObjectCode(returns, target_machine().emit_object(module))


def through_numba(function: Callable[..., Any], helpers: Collection[Callable[..., Any]]) -> Callable[..., Any]:
    """``function``, compiled and called by numba itself: the same results, and a slow start in each process."""
    called: Callable[..., Any] = _njit(**_OPTIONS)(_with_helpers(function, helpers))
    return called


def _with_helpers(function: Callable[..., Any], helpers: Collection[Callable[..., Any]]) -> FunctionType:
    """``function`` with those names of its module compiled that are in ``helpers``."""
    assert isinstance(function, FunctionType)
    names = dict(function.__globals__)
    for name, value in names.items():
        if isinstance(value, FunctionType) and value in helpers:
            names[name] = _njit(forceinline=True, **_BARE)(_with_globals(value, names))
    return _with_globals(function, names)


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


def _numba_type(parameter: Parameter) -> Any:
    if not parameter.element:
        return numba.types.int64
    return numba.types.Array(numba.from_dtype(np.dtype(parameter.element)), parameter.dimensions, "C")


def _entry_point(module: Any, name: str, parameters: Sequence[Parameter]) -> Any:
    """The one function that ``module`` holds, after a look at how it wants to be called."""
    missing = [each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")]
    found = [each for each in module.functions if not each.is_declaration and each.linkage == llvm.Linkage.external]
    if missing or len(found) != 1:
        raise CallingConventionError(f"kernel {name} became {len(found)} functions, which call {missing}")
    wanted, actual = llvm_types(parameters), [_type_name(each.type) for each in found[0].arguments]
    if actual != wanted:
        raise CallingConventionError(f"kernel {name} takes {actual} under numba {numba.__version__}, not {wanted}")
    return found[0]


def _type_name(kind: Any) -> str:
    return POINTER if kind.is_pointer else str(kind)  # older compilers say what a pointer points to


def _returns(kind: Any) -> int:
    if kind == numba.types.none:
        return 0
    if kind == numba.types.int64:
        return ONE_NUMBER
    if isinstance(kind, numba.types.UniTuple) and kind.dtype == numba.types.int64:
        return int(kind.count)
    raise TypeError(f"a kernel returns integers of 64 bits, not {kind}")
