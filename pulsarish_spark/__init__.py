# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink ``pulsarish``: Structured Streaming and batch on any Pulsar broker or on the embedded one.

    spark.readStream.format("pulsarish").option("topic", "flights").load()

``register(spark)`` is only needed where Spark's own discovery of the module ``pyspark_pulsarish`` does not work, and
for batch writes in threads other than the one that made the session;
``local()`` runs a broker of its own for a test or a notebook; ``embedded_broker()`` finds or starts the one that is
used where no address is given; ``use_this_python()`` saves one from the wrong interpreter in Spark's workers;
``progress`` tells how far a query is behind; ``read_arrow()`` is the batch source without Spark.

A name is imported when it is first used: what does not need Spark works without it, and Spark's own processes load only
what they call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pulsarish_spark import progress
    from pulsarish_spark.arrow import read_arrow
    from pulsarish_spark.connecting.connection import embedded_broker
    from pulsarish_spark.connecting.embedded import LocalBroker, local
    from pulsarish_spark.losses.loss import DataLossError
    from pulsarish_spark.source import PulsarishSource, register
    from pulsarish_spark.workers.interpreter import use_this_python

_HOMES: Final = {
    "DataLossError": "losses.loss",
    "LocalBroker": "connecting.embedded",
    "PulsarishSource": "source",
    "embedded_broker": "connecting.connection",
    "local": "connecting.embedded",
    "read_arrow": "arrow",
    "register": "source",
    "use_this_python": "workers.interpreter",
}
"""Where each public name is defined; ``progress`` is a module."""

__all__ = [
    "DataLossError",
    "LocalBroker",
    "PulsarishSource",
    "embedded_broker",
    "local",
    "progress",
    "read_arrow",
    "register",
    "use_this_python",
]


def __getattr__(name: str) -> Any:
    if name == "progress":
        return importlib.import_module("pulsarish_spark.progress")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"pulsarish_spark.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
