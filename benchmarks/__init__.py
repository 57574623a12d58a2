# SPDX-License-Identifier: Apache-2.0
"""Measurements of the product: ``python -m benchmarks`` alone, ``python -m benchmarks.peers`` beside Apache Kafka."""
