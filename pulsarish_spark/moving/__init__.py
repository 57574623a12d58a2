# SPDX-License-Identifier: Apache-2.0
"""Moving jobs of Spark's Kafka source and sink over: what has to change in them."""
