# SPDX-License-Identifier: Apache-2.0
"""The chance that clients leave things to: the system's, and not the generator of Python's ``random``.

That belongs to the program: one that seeds it gets the same numbers whether a client waits in another thread or not.
"""

from __future__ import annotations

import random
from typing import Final

CHANCE: Final = random.SystemRandom()
"""Without a state, so that processes which are forked do not all choose the same."""
