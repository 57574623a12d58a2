# SPDX-License-Identifier: Apache-2.0
"""Connections to brokers, the questions that any broker answers, and staying attached through lost connections."""
