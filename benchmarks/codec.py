# SPDX-License-Identifier: Apache-2.0
"""The columnar codec and the hot heads on one core: ``python -m benchmarks.codec [--quick]``.

A message has a 4-byte key, one property, an event time and a sequence id beside its value (random bytes; where it is
compressed, JSON); a batch has 1000 of them. Eight batches are decoded in one call, with every column; 8000 rows are
encoded in one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.parts import quick_wanted
from broker_core.wire.batch import decode_entries, encode_entries, route_rows
from broker_core.wire.compression import LZ4, NONE, ZSTD
from broker_core.wire.core.hot_commands import (
    message_buffers,
    parse_message,
    parse_receipt,
    parse_sends,
    receipt_frames,
    send_frame_head,
)
from broker_core.wire.entry import EntryRef, seal_entry
from broker_core.wire.frames import FrameReader
from broker_core.wire.proto.pulsar_api_pb2 import MessageMetadata

Result = dict[str, Any]

_MESSAGES: Final = 8000
_BATCH: Final = 1000
_SIZES: Final = {"100 B": 100, "1 KiB": 1024}
_FIRST_USE: Final = """
import time
start = time.perf_counter()
import pyarrow as pa
from broker_core.wire.batch import decode_entries, encode_entries, route_rows
from broker_core.wire.entry import EntryRef
rows = pa.record_batch({"key": pa.array([b"key"]), "value": pa.array([b"value"])})
(entry,) = encode_entries(rows, producer_name="first", first_sequence_id=0, publish_time_ms=1)
decode_entries([EntryRef(0, 0, entry.body)])
route_rows(rows, 2)
print(time.perf_counter() - start)
"""


def run(*, quick: bool) -> list[Result]:
    """Every case: {"case", "unit", "values" (one a run), "cpu_s", "note"}."""
    runs, seconds = (1, 0.02) if quick else (9, 0.3)
    results = []
    for label, size in _SIZES.items():
        rows = _rows(size, np.random.default_rng(size).bytes(size * _MESSAGES))
        text = _rows(size, b"".join(b'{"number":%d,"name":"name %d"},' % (i, i % 97) for i in range(size * 500)))
        plain, lz4, zstd = _entries(rows, NONE), _entries(text, LZ4), _entries(text, ZSTD)
        singles = [EntryRef(1, i, _single(i, size), i, 0) for i in range(_MESSAGES)]
        cases: dict[str, Callable[[], object]] = {
            f"decode {label}": partial(decode_entries, plain),
            f"decode {label}, key and value only": partial(decode_entries, plain, ("key", "value")),
            f"lz4: decode {label}": partial(decode_entries, lz4),
            f"zstd: decode {label}": partial(decode_entries, zstd),
            f"unbatched: decode {label}": partial(decode_entries, singles),
            f"encode {label}": partial(_encode, rows, NONE),
            f"lz4: encode {label}": partial(_encode, text, LZ4),
            f"zstd: encode {label}": partial(_encode, text, ZSTD),
        }
        if size == 100:
            cases["route by key"] = partial(route_rows, rows, 4)
        results += [_rate(case, work, _MESSAGES, "msgs/s", runs, seconds) for case, work in cases.items()]
    results += _heads(runs, seconds)
    results.append(_first_use())
    return results


# -- material


def _rows(size: int, source: bytes) -> pa.RecordBatch:
    columns = {
        "key": pa.array([f"k{i % 1000:03d}" for i in range(_MESSAGES)]),
        "value": pa.array([source[i * size : (i + 1) * size] for i in range(_MESSAGES)], pa.binary()),
        "properties": pa.array(
            [[("source", f"value{i % 10}")] for i in range(_MESSAGES)], pa.map_(pa.string(), pa.string())
        ),
        "event_time": pa.array(np.arange(_MESSAGES) + 1_700_000_000_000),
    }
    return pa.RecordBatch.from_pydict(columns)


def _encode(rows: pa.RecordBatch, codec: int) -> list[Any]:
    return encode_entries(
        rows,
        producer_name="standalone-0-1",
        first_sequence_id=0,
        publish_time_ms=1_700_000_000_000,
        compression=codec,
        messages_max=_BATCH,
        bytes_max=5 * 1024 * 1024,
    )


def _entries(rows: pa.RecordBatch, codec: int) -> list[EntryRef]:
    return [
        EntryRef(1, number, bytes(entry.body), entry.highest_sequence_id, 0)
        for number, entry in enumerate(_encode(rows, codec))
    ]


def _single(number: int, size: int) -> bytes:
    metadata = MessageMetadata(
        producer_name="standalone-0-1",
        sequence_id=number,
        publish_time=1_700_000_000_000,
        partition_key=f"k{number % 1000:03d}",
        event_time=1_700_000_000_000 + number,
    )
    metadata.properties.add(key="source", value=f"value{number % 10}")
    return seal_entry(metadata.SerializeToString(), bytes(size))


# -- measuring


def _heads(runs: int, seconds: float) -> list[Result]:
    send = send_frame_head(3, 1_234_567, 1, 126)
    receipt = receipt_frames((3,), (1_234_567,), 7, 44_321, 0)
    deliveries = [(((7, 44_321), bytes(126), 1, 0, 0), 0, None)]
    message = message_buffers(deliveries, 3, 0, -1, False)[0][0]
    frame = send_frame_head(3, 1_234_567, 1, 126) + bytes(126)
    stream = frame * 1000
    reader = FrameReader(5 * 1024 * 1024)

    def read_frames() -> None:
        at = 0
        while at < len(stream):
            room = reader.get_buffer()
            count = min(len(room), len(stream) - at)
            room[:count] = stream[at : at + count]
            reader.buffer_updated(count)
            at += count

    cases: dict[str, Callable[[], object]] = {
        "head parse_sends": lambda: parse_sends([send[8:]], 0),
        "head send_frame_head": lambda: send_frame_head(3, 1_234_567, 1, 126),
        "head receipt_frames": lambda: receipt_frames((3,), (1_234_567,), 7, 44_321, 0),
        "head parse_receipt": lambda: parse_receipt(receipt[8:]),
        "head message_buffers": lambda: message_buffers(deliveries, 3, 0, -1, False),
        "head parse_message": lambda: parse_message(message[8:]),
    }
    results = [_rate(case, _repeat(work), 1000, "us", runs, seconds) for case, work in cases.items()]
    return [*results, _rate("frames of 126 B cut out of the stream", read_frames, 1000, "us", runs, seconds)]


def _repeat(work: Callable[[], object]) -> Callable[[], object]:
    def thousand() -> None:
        for _ in range(1000):
            work()

    return thousand


def _rate(case: str, work: Callable[[], object], items: int, unit: str, runs: int, seconds: float) -> Result:
    """Run ``work`` over and over for ``seconds``, ``runs`` times; it handles ``items`` items each time."""
    work()
    values, cpu, per_cpu = [], [], []
    for _ in range(runs):
        calls, wall = 0, 0.0
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        while not calls or wall < seconds:
            work()
            calls += 1
            wall = time.perf_counter() - wall_start
        cpu.append(time.process_time() - cpu_start)
        values.append(_measure(calls * items, wall, unit))
        per_cpu.append(_measure(calls * items, cpu[-1], unit))
    note = f"by CPU time {_shown(statistics.median(per_cpu), unit)}"
    return {"case": case, "unit": unit, "values": values, "cpu_s": cpu, "note": note}


def _measure(items: int, seconds: float, unit: str) -> float:
    return items / seconds if unit == "msgs/s" else seconds / items * 1e6


def _shown(value: float, unit: str) -> str:
    return f"{value / 1e6:.2f} M {unit}" if unit == "msgs/s" else f"{value:.3f} {unit}"


def _first_use() -> Result:
    """Import and the first row in a new process."""
    done = subprocess.run([sys.executable, "-c", _FIRST_USE], capture_output=True, text=True, check=True)
    note = "import, one row encoded, decoded and routed"
    return {
        "case": "codec first use in a process",
        "unit": "s",
        "values": [float(done.stdout)],
        "cpu_s": [],
        "note": note,
    }


def main() -> None:
    """Print a line for each case."""
    for result in run(quick=quick_wanted(__doc__)):
        shown = _shown(statistics.median(result["values"]), result["unit"])
        spread = f"({min(result['values']):,.3g} to {max(result['values']):,.3g})"
        print(f"{result['case']:40} {shown:>16} {spread:26} {result['note']}")


if __name__ == "__main__":
    main()
