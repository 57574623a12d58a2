# SPDX-License-Identifier: Apache-2.0
"""Vocabulary that every layer shares: errors, names, positions, hashing, the clock seam, limits and settings.

Nothing here does I/O, except that ``clock.SystemClock`` reads the time.
"""
