# SPDX-License-Identifier: Apache-2.0
"""A second copy of the columnar codec that runs uncompiled and watches every read of the bytes it decodes."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

import pytest

import broker_core.wire

PACKAGES = ("broker_core.wire.batch", "broker_core.wire.core")


class WatchedBytes:
    """Bytes that refuse what lies outside of them, where Python counts from the end or gives less."""

    def __init__(self, data: Any) -> None:
        self._data = memoryview(data)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            assert 0 <= index.start <= index.stop <= len(self._data), f"read from {index.start} to {index.stop}"
        else:
            assert index >= 0, f"read at {index}"
        return self._data[index]


@pytest.fixture(scope="session")
def plain_batch() -> ModuleType:
    """``broker_core.wire.batch`` as it is where its core is not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULSARISH_UNCOMPILED", "1")
        patch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
        for package in PACKAGES:
            patch.setattr(broker_core.wire, package.rpartition(".")[2], None, raising=False)
        for name in [name for name in sys.modules if name.startswith(PACKAGES)]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "cython", None)
        plain = importlib.import_module(PACKAGES[0])
        core, decode = (importlib.import_module(name) for name in (PACKAGES[1], f"{PACKAGES[0]}.decode"))
        for name in [name for name in sys.modules if name.startswith(PACKAGES)]:
            del sys.modules[name]
    assert core.COMPILED is False
    decode.as_array = WatchedBytes  # type: ignore[attr-defined]
    return plain


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """All else here tests the compiled core, unless the environment says otherwise."""
    from broker_core.wire import core

    assert core.COMPILED or os.environ.get("PULSARISH_UNCOMPILED"), core.HINT
