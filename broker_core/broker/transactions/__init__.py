# SPDX-License-Identifier: Apache-2.0
"""Transactions as topics and subscriptions see them: which are open, what they wrote, what readers may see of it.

``coordinator`` begins and ends them. Source: PIP-31; Pulsar docs, "Transactions".
"""
