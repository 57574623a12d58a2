# SPDX-License-Identifier: Apache-2.0
"""Reads described without reading: where they would begin and end, and whether broker and Spark are ready."""
