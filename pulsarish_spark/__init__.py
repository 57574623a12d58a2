# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink ``pulsarish``: Structured Streaming and batch on any Pulsar broker or on the embedded one.

    spark.readStream.format("pulsarish").option("topic", "flights").load()

``register(spark)`` is only needed where Spark's own discovery of the module ``pyspark_pulsarish`` does not work, and
for batch writes in threads other than the one that made the session;
``local()`` runs a broker of its own for a block of code, ``notebook_broker()`` one until Python ends;
``embedded_broker()`` finds or starts the one that is
used where no address is given; ``use_this_python()`` saves one from the wrong interpreter in Spark's workers;
``progress`` tells how far a query is behind; ``read_arrow()`` is the batch source without Spark;
``describe()`` tells what a read would do without reading;
``lint(path)`` says what to change in a job of Spark's Kafka format.
``export_batch()`` writes one batch of a query to a file, ``replay()`` reads that without a broker.
``retry_later()`` and ``dead_letter()`` are for rows that failed in a query that shares its subscription.

A name is imported when it is first used: what does not need Spark works without it, and Spark's own processes load only
what they call.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pulsarish_spark import progress as progress
    from pulsarish_spark.arrow import read_arrow as read_arrow
    from pulsarish_spark.connecting.connection import embedded_broker as embedded_broker
    from pulsarish_spark.connecting.embedded import LocalBroker as LocalBroker
    from pulsarish_spark.connecting.embedded import local as local
    from pulsarish_spark.connecting.embedded import notebook_broker as notebook_broker
    from pulsarish_spark.describing.dry_run import describe as describe
    from pulsarish_spark.letters import dead_letter as dead_letter
    from pulsarish_spark.letters import retry_later as retry_later
    from pulsarish_spark.losses.loss import DataLossError as DataLossError
    from pulsarish_spark.moving.lint import lint as lint
    from pulsarish_spark.replaying.exporting import export_batch as export_batch
    from pulsarish_spark.replaying.replay import replay as replay
    from pulsarish_spark.source import PulsarishSource as PulsarishSource
    from pulsarish_spark.source import register as register
    from pulsarish_spark.workers.interpreter import use_this_python as use_this_python

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules={"progress"},
    submod_attrs={
        "arrow": ["read_arrow"],
        "connecting.connection": ["embedded_broker"],
        "connecting.embedded": ["LocalBroker", "local", "notebook_broker"],
        "describing.dry_run": ["describe"],
        "letters": ["dead_letter", "retry_later"],
        "losses.loss": ["DataLossError"],
        "moving.lint": ["lint"],
        "replaying.exporting": ["export_batch"],
        "replaying.replay": ["replay"],
        "source": ["PulsarishSource", "register"],
        "workers.interpreter": ["use_this_python"],
    },
)
