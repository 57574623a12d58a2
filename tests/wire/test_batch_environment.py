# SPDX-License-Identifier: Apache-2.0
"""Where the codec runs: without numba, without a place for its cache, and never inside a process that has no need."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

from broker_core.testing.reference_codec import decode_reference, encode_reference_batch
from broker_core.wire import batch as compiled_batch
from broker_core.wire.batch.compiled import Kernel
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


def test_warming_up_loads_every_kernel() -> None:
    """After it no first use pays for compilation or loading."""
    compiled_batch.warm_up()
    from broker_core.wire.batch import hashes, keys, repeats, route, walk, write

    for module in (hashes, keys, repeats, route, walk, write):
        kernels = {name: part for name, part in vars(module).items() if isinstance(part, Kernel)}
        assert kernels
        assert all(kernel.is_loaded for kernel in kernels.values()), kernels


def test_a_process_that_finds_compiled_kernels_loads_neither_numba_nor_pandas() -> None:
    """Both take longer to import than a small task takes; pyarrow imports pandas for what looks harmless."""
    code = """
import sys
import numpy as np, pyarrow as pa
from broker_core.wire.batch import decode_entries, encode_entries, route_rows
from broker_core.wire.entry import EntryRef
from pulsarish_spark.rows.columns import ColumnMaker
from pulsarish_spark.rows.schema import TopicColumns
from pulsarish_spark.places.topics import TopicPartition

text = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"kl")])
times = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\\x01"), pa.py_buffer(np.array([7, 0]))])
lists = pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(np.array([0, 1, 2], np.int32))])
properties = pa.MapArray.from_arrays(lists, text, text)
rows = pa.RecordBatch.from_arrays([text, text, properties, times], ["key", "value", "properties", "event_time"])
for part in route_rows(rows, 2):
    rows.take(part)
entries = encode_entries(rows, producer_name="p", first_sequence_id=0, publish_time_ms=1)
needed = TopicColumns().decoded()
found = decode_entries([EntryRef(0, at, entry.body, at, 0) for at, entry in enumerate(entries)], needed)
ColumnMaker(TopicPartition("t", 0), TopicColumns(), partitioned=True).make(found)
print(found.num_rows, sorted({"numba", "pandas"} & set(sys.modules)))
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # compiles what is not there yet
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2 []\n", done.stderr


def test_without_numba_kernels_stay_as_they_are_written(plain_batch: ModuleType) -> None:
    """What is marked then is the function itself."""
    assert not isinstance(plain_batch.walk.walk_rows, Kernel)
    assert isinstance(compiled_batch.walk.walk_rows, Kernel)
