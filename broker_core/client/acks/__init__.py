# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements and negative acknowledgements of one partition: grouping them, sending them, timing them out."""
