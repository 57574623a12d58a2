# SPDX-License-Identifier: Apache-2.0
"""Our errors as Spark's users see them: what is wrong and what to do in the first line, not below 40 lines of a trace.

Spark shows the traceback that its Python process printed, and below it the message. Our errors speak to users, so at
the border where Spark called us they lose their way through our code and the errors that they were made from, and
Spark is told to print the message alone, by the variable that it asks for that. The variable is set where the error
leaves us: a process of Spark's prints one error and ends, so no other error loses its trace. An error that is not of
our tree is a bug and keeps all it has. Source: Spark, ``pyspark.util.handle_worker_exception``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from broker_core.base.errors import PulsarishError

HIDE: Final = "SPARK_HIDE_TRACEBACK"
_SPARKS_OWN: Final = "pyspark."
"""Beginning of the main module's name in the processes that Spark starts."""

P = ParamSpec("P")
R = TypeVar("R")


def plain_errors(method: Callable[P, R]) -> Callable[P, R]:
    """Decorates what Spark calls."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except PulsarishError as error:
            raise _plain(error) from None

    return called


def with_plain_errors(rows: Iterator[R]) -> Iterator[R]:
    """As ``plain_errors`` for what Spark iterates over."""
    try:
        yield from rows
    except PulsarishError as error:
        raise _plain(error) from None


class _PicklingError(PulsarishError, pickle.PickleError):
    """An error of ours that Spark, which pickles, takes for one of pickling, and tells as it is."""


@contextlib.contextmanager
def through_pickling() -> Iterator[None]:
    """As ``plain_errors`` for what happens while Spark pickles an object of ours."""
    try:
        yield
    except PulsarishError as error:
        told = _PicklingError(error.message, hint=error.hint)
        raise _plain(told) from None


def _plain(error: PulsarishError) -> PulsarishError:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is not None and main.name.startswith(_SPARKS_OWN):
        os.environ[HIDE] = "1"
    return error.with_traceback(None)
