# SPDX-License-Identifier: Apache-2.0
"""Reaching the broker from Spark's processes: one client for each address, and the embedded broker."""
