# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink ``pulsarish``: Structured Streaming and batch on any Pulsar broker or on the embedded one.

    spark.readStream.format("pulsarish").option("topic", "flights").load()

use_this_python()            before the session is made, so that Spark's workers run this interpreter
register(spark)              where Spark does not discover the format (PulsarishSource), and for a batch write in a
                             thread that has not made the session
embedded_broker()            finds or starts the broker that is used where no address is given
local(), notebook_broker()   a broker of its own (a LocalBroker), for a block of code or until Python ends
describe()                   what a read would do, without reading
read_arrow()                 the batch source without Spark
progress                     how far a query is behind
retry_later(), dead_letter() for rows that failed in a query that shares its subscription
export_batch(), replay()     one batch of a query as a file, and reading that without a broker
DataLossError                messages that a query should have read are gone
lint(path)                   options to change in a job of Spark's Kafka format

A name is imported when it is first used: what does not need Spark works without it, and Spark's own processes load only
what they call.
"""

from typing import TYPE_CHECKING

from broker_core.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from pulsarish_spark import progress as progress
    from pulsarish_spark.connecting.connection import embedded_broker as embedded_broker
    from pulsarish_spark.connecting.embedded import LocalBroker as LocalBroker
    from pulsarish_spark.connecting.embedded import local as local
    from pulsarish_spark.connecting.embedded import notebook_broker as notebook_broker
    from pulsarish_spark.describing.dry_run import describe as describe
    from pulsarish_spark.kafka_lint import lint as lint
    from pulsarish_spark.letters import dead_letter as dead_letter
    from pulsarish_spark.letters import retry_later as retry_later
    from pulsarish_spark.losses.loss import DataLossError as DataLossError
    from pulsarish_spark.positions.batch_plan import read_arrow as read_arrow
    from pulsarish_spark.replaying.export_file import replay as replay
    from pulsarish_spark.replaying.exporting import export_batch as export_batch
    from pulsarish_spark.source import PulsarishSource as PulsarishSource
    from pulsarish_spark.source import register as register
    from pulsarish_spark.workers.interpreter import use_this_python as use_this_python

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "connecting.connection": ["embedded_broker"],
        "connecting.embedded": ["LocalBroker", "local", "notebook_broker"],
        "describing.dry_run": ["describe"],
        "kafka_lint": ["lint"],
        "letters": ["dead_letter", "retry_later"],
        "losses.loss": ["DataLossError"],
        "positions.batch_plan": ["read_arrow"],
        "progress": ["progress"],
        "replaying.export_file": ["replay"],
        "replaying.exporting": ["export_batch"],
        "source": ["PulsarishSource", "register"],
        "workers.interpreter": ["use_this_python"],
    },
)
