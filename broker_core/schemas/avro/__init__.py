# SPDX-License-Identifier: Apache-2.0
"""Avro schemas by the rules of Java's library, which brokers and clients go by: definition, equality, resolution."""
