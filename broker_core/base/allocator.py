# SPDX-License-Identifier: Apache-2.0
"""How much of what was freed the allocator keeps, for those who take and leave the same few MiB over and over.

Knows only glibc's rule (mallopt(3), M_MMAP_THRESHOLD); where there is another allocator nothing changes.
"""

from __future__ import annotations

import functools
from typing import Final

_KEPT_BYTES: Final = 16 * 1024 * 1024
"""The allocator keeps up to twice this: four reads of the largest size, each with its entries cut out of it."""


@functools.cache
def keep_some() -> None:
    """Left alone, glibc returns freed blocks of some MiB to the system each time, and half of the time goes into
    getting them back page by page, each of them cleared. It learns how much to keep from the largest block that was
    ever freed. This one is never touched: it is free. Only the first call in a process does something."""
    lesson = bytes(_KEPT_BYTES)
    del lesson
