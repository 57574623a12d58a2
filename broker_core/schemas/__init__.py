# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics: definitions, and whether data that was written with one can be read with another. No I/O."""
