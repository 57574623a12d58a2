# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
"""
# A work queue: Spark beside an ordinary consumer, with retries and dead letters

Orders have to be paid. Two work on them at once: a Spark query, and a small program with an ordinary Pulsar consumer.
They share one subscription, so each order goes to one of them. Some orders find the bank busy: they go to the retry
topic and come again after a pause, to whoever has time. Some cannot be read by anybody: they go to the dead letter
topic, where they wait for a human being. At the end each order is in exactly one place.
"""

# %%
import json
import threading
import uuid
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pulsarish_spark
from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client, DeadLetterPolicy, Message

pulsarish_spark.use_this_python()
builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", False)
spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

where: Any = {"service.url": pulsarish_spark.notebook_broker().service_url}
client = Client(where["service.url"])
topic = f"orders-{uuid.uuid4().hex[:8]}"
PAUSE_S = 1

# %% [markdown]
# ## The ordinary consumer, and the support desk
#
# The consumer takes retries too and knows when to give up. `support` keeps dead letters from the first one on:
# without a subscription nobody keeps them.

# %%
consumer = client.subscribe(
    topic,
    "payment",
    type="shared",
    retry_enabled=True,
    dead_letter_policy=DeadLetterPolicy(max_redeliver_count=3),
    negative_ack_redelivery_delay_s=0.1,
    receiver_queue_size=20,
)
support = client.subscribe(f"{topic}-payment-DLQ", "support")

# %% [markdown]
# ## Orders
#
# 300 of them. Every tenth is cut off in the middle and no JSON any more; every sixth finds the bank busy at first.
# Messages are sent without batching, so that they can be shared out one by one.

# %%
ORDERS = range(300)
UNREADABLE = {number for number in ORDERS if number % 10 == 3}
BUSY = {number for number in ORDERS if number % 6 == 0}

with client.create_producer(topic, batching_enabled=False) as producer:
    for number in ORDERS:
        order = json.dumps({"number": number, "amount": 10 + number})
        producer.send_async(order[:-5] if number in UNREADABLE else order)

# %% [markdown]
# ## The Spark query
#
# `subscriptionType` makes it one consumer of the subscription among others. It cannot give back a part of a micro-
# batch, so it sends copies of what failed: `retry_later` and `dead_letter` do that as every Pulsar client would.

# %%
by_spark: list[int] = []
has_begun = threading.Event()


def process(batch: DataFrame, _: int) -> None:
    """Pay what can be paid; what failed goes where it belongs."""
    batch.persist()
    number = F.get_json_object(F.col("value").cast("string"), "$.number").cast("int")
    first_time = F.element_at("properties", "RECONSUMETIMES").isNull()
    orders = batch.withColumn("number", number).withColumn("bank_busy", (number % 6 == 0) & first_time)

    by_spark.extend(row.number for row in orders.where("number is not null and not bank_busy").collect())
    pulsarish_spark.retry_later(orders.where("bank_busy"), PAUSE_S, topic=topic, subscription="payment", **where)
    pulsarish_spark.dead_letter(orders.where("number is null"), topic=topic, subscription="payment", **where)
    batch.unpersist()
    has_begun.set()


work = (
    spark.readStream.format("pulsarish")
    .options(**where)
    .option("subscriptionName", "payment")
    .option("subscriptionType", "Shared")
    .option("retryEnabled", True)
    .option("columns", "all")  # copies for other topics need Pulsar's columns too
    .option("maxOffsetsPerTrigger", 60)
    .load(topic)
)
query = work.writeStream.foreachBatch(process).start()

# %% [markdown]
# ## Meanwhile the consumer
#
# It starts when the query has had its first batch, and works until every order is paid or a dead letter.

# %%
by_consumer: list[int] = []
letters: list[Message] = []


def pay(message: Message) -> None:
    """One order, by the ordinary consumer."""
    try:
        number = json.loads(message.value or b"")["number"]
    except ValueError:
        consumer.negative_acknowledge(message)  # it comes again, to anybody, and in the end it is a dead letter
        return
    if number in BUSY and "RECONSUMETIMES" not in message.properties:
        consumer.reconsume_later(message, PAUSE_S)
        return
    by_consumer.append(number)
    consumer.acknowledge(message)


has_begun.wait(300)
while query.isActive and len(by_spark) + len(by_consumer) + len(letters) < len(ORDERS):
    try:
        pay(consumer.receive(0.1))
    except OperationTimeoutError:  # nothing to do: a look at the dead letters
        try:
            letters.append(support.receive(0.1))
            support.acknowledge(letters[-1])
        except OperationTimeoutError:
            continue
query.processAllAvailable()  # so that no batch is under way that would be cut off
query.stop()

# %% [markdown]
# ## Where every order is

# %%
paid = Counter(by_spark + by_consumer)
print(f"{len(ORDERS):4} orders")
print(f"{len(paid):4} paid, {len(BUSY & paid.keys())} of them in the second attempt")
print(f"{len(letters):4} dead letters, such as {min(letters, key=lambda each: each.value or b'').value!r}")
print("Spark and the consumer both had work:", bool(by_spark and by_consumer))

# %% [markdown]
# ## Check
#
# Each order is paid once, or is a dead letter once. (If the query were killed in the middle of a batch, an order
# could be paid twice: `docs/queues.md` has the table, and what `queueGuarantee` does about it.)

# %%
client.close()
assert paid == Counter(number for number in ORDERS if number not in UNREADABLE), paid
assert len({letter.value for letter in letters}) == len(letters) == len(UNREADABLE), letters
print("check: passed, every order is in exactly one place")
