# SPDX-License-Identifier: Apache-2.0
"""Whether the core runs compiled: where it is, unless ``PULSARISH_UNCOMPILED=1`` asks for its sources, which is what a
debugger wants. Where it cannot, this process says so, once for all that it starts."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from typing import Final

_SWITCH: Final = "PULSARISH_UNCOMPILED"
_TOLD: Final = "PULSARISH_UNCOMPILED_TOLD"

HINT: Final = "install a C compiler and Python's headers (Debian: gcc, python3-dev), then install pulsarish again"
"""Advice where the core is not compiled."""

is_unwanted: Final = os.environ.get(_SWITCH, "0") not in ("", "0")
"""Whether the environment asks for an uncompiled core."""

if is_unwanted:
    for _folder in sys.modules["broker_core.wire.core"].__path__:
        # Python prefers a compiled module to its source: here it is to find sources only.
        sys.path_importer_cache[_folder] = FileFinder(_folder, (SourceFileLoader, SOURCE_SUFFIXES))

from broker_core.wire.core import fields  # noqa: E402 # decides between the two by what is above

COMPILED: Final = not str(fields.__file__).endswith(tuple(SOURCE_SUFFIXES))
"""Whether the core is machine code in this process."""

if not COMPILED and not is_unwanted and _TOLD not in os.environ:
    os.environ[_TOLD] = "1"  # for the processes that this one starts
    sys.stderr.write(f"pulsarish: the core is not compiled here, so that all is several times slower; {HINT}\n")
