# SPDX-License-Identifier: Apache-2.0
"""Connections to brokers and what needs nothing else: lookup, subscribing, reconnecting, looking for new partitions."""
