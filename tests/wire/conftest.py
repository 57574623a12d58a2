# SPDX-License-Identifier: Apache-2.0
"""A second copy of the columnar codec that runs uncompiled and watches every read of the bytes it decodes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import broker_core.wire

PACKAGE = "broker_core.wire.batch"


class WatchedBytes(np.ndarray[Any, Any]):
    """Bytes that refuse an index below 0, where numpy would count from the end; above the end numpy refuses itself."""

    def __getitem__(self, index: Any) -> Any:
        assert index >= 0, f"read at {index}"
        return np.uint8(super().__getitem__(index))


@pytest.fixture(scope="session")
def plain_batch() -> Iterator[ModuleType]:
    """``broker_core.wire.batch`` as it is where numba is not installed."""
    compiled = {name: module for name, module in sys.modules.items() if name.startswith(PACKAGE)}
    numba = sys.modules.get("numba")
    before = getattr(broker_core.wire, "batch", None)
    for name in compiled:
        del sys.modules[name]
    sys.modules["numba"] = None  # type: ignore[assignment] # an import of it fails now
    try:
        plain = importlib.import_module(PACKAGE)
        decode = importlib.import_module(f"{PACKAGE}.decode")
    finally:
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(compiled)
        del sys.modules["numba"]
        if numba is not None:
            sys.modules["numba"] = numba
        if before is not None:
            broker_core.wire.batch = before  # type: ignore[attr-defined]
    assert plain.COMPILED is False
    plain_as_array = decode.as_array
    decode.as_array = lambda data: plain_as_array(data).view(WatchedBytes)  # type: ignore[attr-defined]
    yield plain
    decode.as_array = plain_as_array  # type: ignore[attr-defined]
