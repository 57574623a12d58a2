# SPDX-License-Identifier: Apache-2.0
"""Strategies of compatibility: which data a topic's new schema has to read, and which schemas have to read its data."""

from __future__ import annotations

import enum


class Strategy(enum.Enum):
    """A strategy by its name in settings and policies. ``UNDEFINED``: the next wider scope decides."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all earlier schemas count, and not the last one alone."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def reads_older(self) -> bool:
        """Whether a new schema has to read data of an old one."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        """Whether an old schema has to read data of a new one."""
        return self.value.startswith(("FORWARD", "FULL"))
