# SPDX-License-Identifier: Apache-2.0
"""Retry letters and dead letters."""
