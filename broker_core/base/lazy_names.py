# SPDX-License-Identifier: Apache-2.0
"""Names of a package that are imported when they are first used: a program loads only the modules that it calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of ``package``. ``homes``: names by the module that has them; a name
    that its module has too is the module itself."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def imported(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{home_of[name]}")
        found = module if home_of[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return imported, lambda: sorted(home_of), sorted(home_of)
