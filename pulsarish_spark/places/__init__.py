# SPDX-License-Identifier: Apache-2.0
"""Names of places: topics, partitions, offsets, and how users write them. Pure."""
