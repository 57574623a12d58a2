# SPDX-License-Identifier: Apache-2.0
"""Bytes of the Pulsar protocol: frames, heads of hot commands, entries, compression, and the columnar batch codec.

Sans-I/O throughout. Nothing here, save the subpackage ``batch``, imports numpy or pyarrow: a broker never
looks inside an entry and must start without them.
"""
