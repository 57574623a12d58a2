# SPDX-License-Identifier: Apache-2.0
"""Every option of the source and the sink, declared once, in a file for each kind of question that it answers.

Kafka's and pulsar-spark's names are aliases where the meaning is the same. ``table`` finds an option by its name,
``source_and_sink`` makes one typed value of all that were given.
"""

from pulsarish_spark.options.batch_limits import Amounts
from pulsarish_spark.options.option import Option, Side
from pulsarish_spark.options.sending import DELIVER_AFTER_MS_MAX, KeyForm
from pulsarish_spark.options.source_and_sink import (
    ReadOptions,
    WriteOptions,
    address_options,
    exported_options,
    names_broker,
    names_topics,
    option_texts,
    read_options,
    replay_file,
    write_options,
)
from pulsarish_spark.options.subscriptions import QueueOptions
from pulsarish_spark.options.table import OPTIONS, check_option

__all__ = [
    "DELIVER_AFTER_MS_MAX",
    "OPTIONS",
    "Amounts",
    "KeyForm",
    "Option",
    "QueueOptions",
    "ReadOptions",
    "Side",
    "WriteOptions",
    "address_options",
    "check_option",
    "exported_options",
    "names_broker",
    "names_topics",
    "option_texts",
    "read_options",
    "replay_file",
    "write_options",
]
