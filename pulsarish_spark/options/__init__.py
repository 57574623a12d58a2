# SPDX-License-Identifier: Apache-2.0
"""Every option of the source and the sink, declared once, in a file for each kind of question that it answers.

Kafka's and pulsar-spark's names are aliases where the meaning is the same. ``table`` finds an option by its name,
``source_and_sink`` makes one typed value of all that were given.
"""

from pulsarish_spark.options.batch_limits import Amounts as Amounts
from pulsarish_spark.options.option import Option as Option
from pulsarish_spark.options.option import Side as Side
from pulsarish_spark.options.sending import DELIVER_AFTER_MS_MAX as DELIVER_AFTER_MS_MAX
from pulsarish_spark.options.sending import KeyForm as KeyForm
from pulsarish_spark.options.source_and_sink import ReadOptions as ReadOptions
from pulsarish_spark.options.source_and_sink import WriteOptions as WriteOptions
from pulsarish_spark.options.source_and_sink import address_options as address_options
from pulsarish_spark.options.source_and_sink import exported_options as exported_options
from pulsarish_spark.options.source_and_sink import names_broker as names_broker
from pulsarish_spark.options.source_and_sink import names_topics as names_topics
from pulsarish_spark.options.source_and_sink import option_texts as option_texts
from pulsarish_spark.options.source_and_sink import read_options as read_options
from pulsarish_spark.options.source_and_sink import replay_file as replay_file
from pulsarish_spark.options.source_and_sink import write_options as write_options
from pulsarish_spark.options.subscriptions import QueueOptions as QueueOptions
from pulsarish_spark.options.table import OPTIONS as OPTIONS
from pulsarish_spark.options.table import check_option as check_option
from pulsarish_spark.options.values import ValueOptions as ValueOptions
