# SPDX-License-Identifier: Apache-2.0
"""Options of other sources and of Spark itself that are refused, each with the reason and what to do."""

from __future__ import annotations

from typing import Final

_NOT_NEEDED: Final = "is not needed here; remove it"
_NO_ENCRYPTION: Final = "is not supported: messages are not encrypted here; encrypt the value, or remove it"
_SIDE_BY_SIDE: Final = "is not possible: tasks write side by side, each as a producer of its own; remove it"
_NOTHING_WAITS: Final = "is not needed: a task has its rows at hand and waits for room by itself; remove it"
_OF_A_TABLE: Final = (
    "came from CREATE TABLE, which does not keep options; a view does: "
    "CREATE TEMPORARY VIEW flights USING pulsarish OPTIONS (topic 'flights')"
)
_OF_A_QUERY: Final = "is Spark's own, of a query that is written as a stream; give it after writeStream"

_PEM: Final = "is of Java's key stores; give PEM files: tlsTrustCertsFilePath, tlsCertificateFilePath, tlsKeyFilePath"

_COMPACTED: Final = (
    "is not supported: this source reads what was sent, and reports what is missing of it as lost; remove it, and "
    "keep the newest row of each key"
)

REFUSED: Final = {
    "readCompacted": _COMPACTED,
    "pulsar.reader.readCompacted": _COMPACTED,
    "pulsar.consumer.readCompacted": _COMPACTED,
    "pulsar.client.useKeyStoreTls": _PEM,
    "pulsar.client.tlsTrustStorePath": _PEM,
    "pulsar.client.tlsTrustStorePassword": _PEM,
    "pulsar.client.tlsKeyStorePath": _PEM,
    "pulsar.client.tlsKeyStorePassword": _PEM,
    "kafka.bootstrap.servers": "names a Kafka cluster and this format speaks Pulsar; "
    'give .option("service.url", "pulsar://host:6650"), or no address at all to use the embedded broker',
    "kafka.compression.type": 'is said otherwise here: .option("compression", "lz4")',
    "paths": 'was given by load([...]); name the topics: .option("topics", "a,b").load()',
    "owner": _OF_A_TABLE,
    "provider": _OF_A_TABLE,
    "checkpointLocation": _OF_A_QUERY,
    "queryName": _OF_A_QUERY,
    "waitingForNonExistedTopic": "is not needed: a stream waits for its topic; remove it",
    "allowDifferentTopicSchemas": "is not needed: values are read as bytes; remove it",
    "pollTimeoutMs": _NOT_NEEDED,
    "kafkaConsumer.pollTimeoutMs": _NOT_NEEDED,
    "fetchOffset.numRetries": _NOT_NEEDED,
    "fetchOffset.retryIntervalMs": _NOT_NEEDED,
    "pulsar.producer.topicName": 'is said otherwise here: .option("topic", "flights")',
    "pulsar.producer.cryptoKeyReader": _NO_ENCRYPTION,
    "pulsar.producer.encryptionKeys": _NO_ENCRYPTION,
    "pulsar.producer.cryptoFailureAction": _NO_ENCRYPTION,
    "pulsar.producer.messageCrypto": _NO_ENCRYPTION,
    "pulsar.producer.producerName": _SIDE_BY_SIDE,
    "pulsar.producer.accessMode": _SIDE_BY_SIDE,
    "pulsar.producer.customMessageRouter": "is not supported; the column partition says where a row goes",
    "pulsar.producer.batcherBuilder": 'is said otherwise here: .option("batchingType", "key_based")',
    "pulsar.producer.batchingEnabled": 'is said otherwise here: .option("batchingMaxMessages", "1") sends rows singly',
    "pulsar.producer.initialSequenceId": "is not supported; the column sequence_id numbers rows",
    "pulsar.producer.batchingMaxPublishDelayMicros": _NOTHING_WAITS,
    "pulsar.producer.blockIfQueueFull": _NOTHING_WAITS,
    "pulsar.producer.maxPendingMessages": _NOTHING_WAITS,
    "pulsar.producer.maxPendingMessagesAcrossPartitions": _NOTHING_WAITS,
}
"""Options of Spark's Kafka source and of pulsar-spark that mean nothing here, or something that cannot be had."""


OF_A_QUERY: Final = frozenset({"checkpointlocation", "queryname"})
"""The refused names, in lower case, that Spark passes to a streaming sink, where they are right."""

SECURING_KAFKA: Final = ("kafka.security.", "kafka.ssl.", "kafka.sasl.")
"""Beginnings of names. If such a setting is only removed, the client connects without TLS and without credentials."""

SAID_INSTEAD: Final = (
    "secures connections of the Kafka client, which is not used here; TLS is .option"
    '("service.url", "pulsar+ssl://host:6651"), and who connects is said by tokenFile or authPluginClassName'
)

FOREIGN: Final = {"kafka.": "the Kafka client", "pulsar.": "the Java client of Pulsar"}
"""Beginnings of the names of settings of other clients, and whose they are."""
