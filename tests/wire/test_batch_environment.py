# SPDX-License-Identifier: Apache-2.0
"""Where the codec runs: without numba, without a place for its cache, and never inside a process that has no need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker_core.testing.reference_codec import decode_reference, encode_reference_batch
from broker_core.wire import batch as compiled_batch
from broker_core.wire.batch import compiled
from broker_core.wire.entry import EntryRef


def test_the_plain_modules_import_nothing_heavy() -> None:
    """A broker starts without numpy, numba and pyarrow (a second and 100 MiB)."""
    code = (
        "import sys, broker_core.wire\n"
        "from broker_core.wire import commands, compression, entry, frames, heads, varint\n"
        "print({'numpy', 'numba', 'pyarrow'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_numba_the_codec_works_uncompiled(plain_batch: ModuleType) -> None:
    """The same source, slower; everything can be warmed up there too."""
    assert not plain_batch.COMPILED
    assert compiled_batch.COMPILED
    plain_batch.warm_up()
    rows = [{"key": "k", "value": b"v", "properties": [("a", "b")], "event_time": 3}] * 10
    source = [EntryRef(1, 2, encode_reference_batch(rows, producer_name="p", first_sequence_id=0, publish_time_ms=1))]
    found = plain_batch.decode_entries(source)
    assert found.equals(compiled_batch.decode_entries(source))
    assert [{**row, "properties": dict(row["properties"])} for row in found.to_pylist()] == decode_reference(source)


def test_warming_up_compiles_every_kernel() -> None:
    """After it no first use pays for compilation, and none is compiled for two sets of types."""
    compiled_batch.warm_up()
    from broker_core.wire.batch import keys, repeats, route, walk, write

    for module in (keys, repeats, route, walk, write):
        kernels = {name: part for name, part in vars(module).items() if hasattr(part, "signatures") and name[0] != "_"}
        assert kernels
        for name, kernel in kernels.items():
            assert len(kernel.signatures) == 1, name


def test_without_a_place_for_the_cache_kernels_are_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation for a user without a home is slow to start, but works."""
    asked: list[bool] = []

    def njit(*, cache: bool = False, **_: Any) -> Callable[[Any], Any]:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiled, "_numba", SimpleNamespace(njit=njit))
    monkeypatch.setattr(compiled, "COMPILED", True)
    assert compiled.kernel(len) is len
    assert asked == [True, False]
