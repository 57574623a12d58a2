# SPDX-License-Identifier: Apache-2.0
"""Transactions: their coordinators, what belongs to one, and how it ends."""
