# SPDX-License-Identifier: Apache-2.0
"""Coordinators of transactions: they begin transactions, and end each on all that it has touched.

Source: PIP-31; Pulsar docs, "Transactions".
"""
