# SPDX-License-Identifier: Apache-2.0
"""Checks of our own logic that stay on under ``python -O``.

For what the outside world sends use the classes of ``errors``; a failed invariant is always our bug.
"""


class InvariantError(AssertionError):
    """Our own logic broke a rule that it promised to keep. Never caught, except at the root of a task."""


def invariant(condition: object, message: str, *values: object) -> None:
    """Raise InvariantError unless ``condition`` holds; ``message`` is a %-format for ``values``."""
    if not condition:
        raise InvariantError(message % values if values else message)
