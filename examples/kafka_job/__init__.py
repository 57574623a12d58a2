# SPDX-License-Identifier: Apache-2.0
"""One job of Spark's Kafka format, before and after it moves over; ``from_kafka.py`` tells of it."""
