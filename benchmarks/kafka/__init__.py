# SPDX-License-Identifier: Apache-2.0
"""One Apache Kafka broker and the jars of Spark's Kafka connector, as the peer to measure against."""
