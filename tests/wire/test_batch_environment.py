# SPDX-License-Identifier: Apache-2.0
"""Where the codec runs: compiled or not, and never inside a process that has no need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

from broker_core.wire import batch as compiled_batch
from broker_core.wire import core
from broker_core.wire.entry import EntryRef
from tests.wire.reference_codec import decode_reference, encode_reference_batch

ROOT = Path(__file__).parents[2]


def test_the_plain_modules_import_nothing_heavy() -> None:
    """A broker starts without numpy and pyarrow (a second and 100 MiB)."""
    code = (
        "import sys, broker_core.wire\n"
        "from broker_core.wire import commands, compression, entry, frames, heads\n"
        "from broker_core.wire.core import entries, fields, keys, rows\n"
        "print({'numpy', 'pyarrow'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_uncompiled_the_codec_gives_the_same(plain_batch: ModuleType) -> None:
    """The same source, slower."""
    rows = [{"key": "k", "value": b"v", "properties": [("a", "b")], "event_time": 3}] * 10
    source = [EntryRef(1, 2, encode_reference_batch(rows, producer_name="p", first_sequence_id=0, publish_time_ms=1))]
    found = plain_batch.decode_entries(source)
    assert found.equals(compiled_batch.decode_entries(source))
    assert [{**row, "properties": dict(row["properties"])} for row in found.to_pylist()] == decode_reference(source)


def test_a_process_that_decodes_does_not_load_pandas() -> None:
    """To import it takes longer than a small task; pyarrow imports it for what looks harmless."""
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
print(found.num_rows, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "2 False\n", done.stderr


def _in_a_copy(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` over a copy of the package whose core is not compiled, in a process that cannot import Cython."""
    shutil.copytree(ROOT / "broker_core", folder / "broker_core", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    code = f"import sys; sys.modules['cython'] = None\n{code}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PULSARISH_UNCOMPILED")}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_an_uncompiled_core_says_so_once_for_all_processes(tmp_path: Path) -> None:
    """It works, several times slower; a process that a told one starts is silent."""
    code = (
        "import subprocess, broker_core.wire.core as core\n"
        "started = [sys.executable, '-c', 'import broker_core.wire.core']\n"
        "print(core.COMPILED, core.__file__, subprocess.run(started, capture_output=True).stderr)"
    )
    done = _in_a_copy(tmp_path, code)
    assert done.stdout == f"False {tmp_path / 'broker_core/wire/core/__init__.py'} b''\n"
    assert "the core is not compiled here" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_uncompiled_and_without_cython_commands_and_frames_are_read_alike(tmp_path: Path) -> None:
    """The tests of what a broker reads and writes, where nobody can have compiled anything."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    files = [f"tests/wire/test_{name}.py" for name in ("heads", "frames", "large_commands", "core_metadata")]
    code = f"import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', *{files!r}]))"
    assert " passed" in _in_a_copy(tmp_path, code, PULSARISH_UNCOMPILED="1").stdout


def test_the_environment_can_ask_for_an_uncompiled_core() -> None:
    """What a debugger wants: the sources run, although they are compiled, and nothing is said."""
    code = "import broker_core.wire.core as core; print(core.COMPILED, core.fields.__file__[-9:])"
    for unwanted, said in (("1", "False fields.py\n"), ("0", "True")):
        environment = {**os.environ, "PULSARISH_UNCOMPILED": unwanted}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(said)
        assert done.stderr == ""


def test_every_module_of_the_core_is_compiled_from_what_it_is_now() -> None:
    """Set-up compiles what has changed; a stale module would be tested, and not its source."""
    stale = [
        source.name
        for source in Path(core.__file__).parent.glob("*.py")
        if source.stem not in ("__init__", "mode", "uncompiled")
        and not any(each.stat().st_mtime >= source.stat().st_mtime for each in _machine_code_of(source))
    ]
    assert stale == [], "run: .venv/bin/python setup.py build_ext --inplace"


def _machine_code_of(source: Path) -> list[Path]:
    return [
        source.with_name(source.stem + suffix)
        for suffix in EXTENSION_SUFFIXES
        if source.with_name(source.stem + suffix).exists()
    ]
