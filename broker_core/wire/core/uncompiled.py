# SPDX-License-Identifier: Apache-2.0
"""The names of Cython's pure Python mode for a run that is not compiled, so that nobody needs Cython to run.

Declarations declare nothing here: a number is Python's own, and a C array a list. Never compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

compiled = False


def kernel(function: _Function) -> _Function:
    """A function over arrays. Uncompiled it reads them through memoryviews, whose elements are Python's own integers:
    quicker than numpy's, and they never overflow."""
    if not isinstance(function, FunctionType):
        return function

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        return function(*[memoryview(each) if _is_plain_array(each) else each for each in arguments])

    return cast("_Function", called)


def _is_plain_array(value: Any) -> bool:
    """Whether ``value`` is an array of numbers."""
    return hasattr(value, "dtype") and value.dtype.names is None


def cfunc(function: _Function) -> _Function:
    """A function that only its own module calls."""
    return function


cclass = cfunc


def exceptval(**_options: Any) -> Callable[[_Function], _Function]:
    """The value by which a function tells an exception."""
    return cfunc


class _WithoutLock:
    """``nogil``, of a function and of a block."""

    def __call__(self, function: _Function) -> _Function:
        return function

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_raised: object) -> None:
        pass


nogil = _WithoutLock()


def declare(_kind: Any, value: Any = None) -> Any:
    """A variable of a C type."""
    return value


def struct(**_fields: Any) -> Any:
    """A C struct: an array of such is a structured one of numpy."""
    return None


def __getattr__(_name: str) -> Any:
    """A C type."""
    return None
