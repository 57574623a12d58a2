# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink ``pulsarish``: Structured Streaming and batch on any Pulsar broker or on the embedded one.

    spark.readStream.format("pulsarish").option("topic", "flights").load()

``register(spark)`` is only needed where Spark's own discovery of the module ``pyspark_pulsarish`` does not work, and
for batch writes in threads other than the one that made the session;
``local()`` runs a broker of its own for a test or a notebook; ``embedded_broker()`` finds or starts the one that is
used where no address is given; ``use_this_python()`` saves one from the wrong interpreter in Spark's workers;
``progress`` tells how far a query is behind.
"""

from pulsarish_spark import progress
from pulsarish_spark.connecting.connection import embedded_broker
from pulsarish_spark.connecting.embedded import LocalBroker, local
from pulsarish_spark.losses.loss import DataLossError
from pulsarish_spark.source import PulsarishSource, register
from pulsarish_spark.workers.interpreter import use_this_python

__all__ = [
    "DataLossError",
    "LocalBroker",
    "PulsarishSource",
    "embedded_broker",
    "local",
    "progress",
    "register",
    "use_this_python",
]
