# SPDX-License-Identifier: Apache-2.0
"""Durable storage: topic logs, cursors and the catalogue of one data directory, with one group commit for all.

Pure but for ``disk``: files are reached through the ``Disk`` seam, time through ``base.clock``. ``Store`` is the door.
"""
