# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements and negative acknowledgements: grouping them, sending them, and timing out."""
