# SPDX-License-Identifier: Apache-2.0
"""Compaction: of each key of a topic the last message, kept as a view beside the log."""
