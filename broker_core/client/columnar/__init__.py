# SPDX-License-Identifier: Apache-2.0
"""Whole entries in bulk: reading exact ranges, writing record batches, and the durable cursors of bulk readers."""
