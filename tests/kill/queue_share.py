# SPDX-License-Identifier: Apache-2.0
"""Millions of messages shared by a Spark query and three ordinary consumers: each must be processed by exactly one.

    python -m tests.kill.queue_share [--broker pulsarish|apache] [--messages N] [--guarantee commit|claim]

The consumers are Pulsar's own Python client, Pulsar's own Java client and ours, each a process of its own. Nobody is
killed. Every message holds its number; who processes it counts it in a table of its own (``queue_sharers``), and in the
end the tables together must be 1 at every place, and nothing may be left on the subscription. Exit code 0: so it is.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.client import Client
from tests.kill.queue_rig import BROKERS, GUARANTEES, running
from tests.kill.queue_sharers import (
    NUMBERS,
    SUBSCRIPTION,
    TOPIC,
    Counts,
    JavaSharer,
    PythonSharer,
    Sharer,
    SparkSharer,
    say,
    work_as_official_client,
    work_as_our_client,
)

MESSAGES: Final = 10_000_000
ENTRY_MESSAGES: Final = 1000
ROWS_AT_ONCE: Final = 100_000
ROWS_AT_FIRST: Final = 10_000
TIMEOUT_S: Final = 3600.0
LOOK_S: Final = 0.5
"""How often somebody looks whether all is done."""
TELL_S: Final = 10.0
QUIET_S: Final = 5.0
"""Nobody was given anything for so long, so nothing comes any more."""


def fill(service_url: str, messages: int, sharers: Mapping[str, Sharer]) -> None:
    """The numbers from 0 on, in entries of many: few at a time until each of ``sharers`` has been given some."""
    first = 0
    with Client(service_url) as client, client.write_rows(TOPIC, batching_max_messages=ENTRY_MESSAGES) as writer:
        while first < messages:
            waits_for = [name for name, each in sharers.items() if not each.processed]
            end = min(first + (ROWS_AT_FIRST if waits_for and first < messages // 2 else ROWS_AT_ONCE), messages)
            writer.write(_rows(np.arange(first, end, dtype=NUMBERS)))
            first = end
            if waits_for:
                writer.flush()
                time.sleep(LOOK_S)


def _rows(numbers: NDArray[np.int64]) -> pa.RecordBatch:
    offsets = np.arange(0, NUMBERS.itemsize * (len(numbers) + 1), NUMBERS.itemsize, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers)]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(numbers), buffers)
    return pa.RecordBatch.from_arrays([values], ["value"])


@dataclass(frozen=True, slots=True)
class Shared:
    """How often each participant has processed each number, in how many seconds, and what the broker still has."""

    counts: Mapping[str, Counts]
    took_s: float
    left: int

    def table(self) -> list[str]:
        """A line for each participant, and the verdict."""
        times = self._times()
        lines = [f"{'participant':<24} {'processed':>12} {'share':>7}"]
        for name, counts in self.counts.items():
            total = int(counts.sum(dtype=np.int64))
            lines.append(f"{name:<24} {total:>12,} {total / len(times):>7.1%}")
        lost, repeated = int((times == 0).sum()), int((times > 1).sum())
        lines.append(f"{'all':<24} {int(times.sum()):>12,}   in {self.took_s:.0f} s")
        lines.append(f"{lost:,} lost, {repeated:,} more than once, {self.left:,} left on the subscription")
        return lines

    @property
    def holds(self) -> bool:
        """Whether each was processed by exactly one of them."""
        return bool((self._times() == 1).all()) and not self.left

    def _times(self) -> NDArray[np.int64]:
        """How often each number was processed, by whomever."""
        times: NDArray[np.int64] = np.sum(list(self.counts.values()), axis=0, dtype=np.int64)
        return times


def play(service_url: str, guarantee: str, messages: int, folder: Path) -> Shared:
    """Let all of them work until nothing comes any more."""
    with Client(service_url) as client:
        client.create_producer(TOPIC).close()
        client.subscribe(TOPIC, SUBSCRIPTION, type="shared", initial_position="earliest").close()
    begun = time.monotonic()
    sharers: dict[str, Sharer] = {
        "Spark, in queue mode": SparkSharer(service_url, guarantee, folder / "checkpoint", messages),
        "Pulsar's Python client": PythonSharer(work_as_official_client, service_url, folder / "official.npy", messages),
        "Pulsar's Java client": JavaSharer(service_url, folder / "java.counts", messages),
        "our client": PythonSharer(work_as_our_client, service_url, folder / "ours.npy", messages),
    }
    fill(service_url, messages, sharers)
    say(f"{messages:,} messages were sent")
    last = _wait_until_quiet(sharers, messages)
    return Shared({name: each.end() for name, each in sharers.items()}, last - begun, _left(service_url))


def _wait_until_quiet(sharers: Mapping[str, Sharer], messages: int) -> float:
    """Return, behind the last message, when it came."""
    begun = last = told = time.monotonic()
    before = 0
    while (now := time.monotonic()) - begun < TIMEOUT_S:
        if failed := [name for name, each in sharers.items() if not each.is_running]:
            raise RuntimeError(f"ended before its time: {', '.join(failed)}")
        processed = {name: each.processed for name, each in sharers.items()}
        if (total := sum(processed.values())) != before:
            before, last = total, now
        if now - told >= TELL_S:
            told = now
            each_of_them = ", ".join(f"{name} {count:,}" for name, count in processed.items())
            say(f"{now - begun:5.0f} s: {total:,} of {messages:,}; {each_of_them}")
        if total >= messages and now - last >= QUIET_S:
            return last
        time.sleep(LOOK_S)
    return last


def _left(service_url: str) -> int:
    """How many messages the subscription still gives to somebody."""
    left = 0
    with Client(service_url) as client, client.subscribe(TOPIC, SUBSCRIPTION, type="shared") as consumer:
        while found := consumer.batch_receive(max_messages=1000, timeout_s=QUIET_S):
            left += len(found)
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description="Share messages between Spark and three consumers, and count.")
    parser.add_argument("--broker", choices=BROKERS, default=BROKERS[0])
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--guarantee", choices=GUARANTEES, default=GUARANTEES[0])
    asked = parser.parse_args()
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        service_url = opened.enter_context(running(asked.broker))
        shared = play(service_url, asked.guarantee, asked.messages, folder)
    sys.stdout.write("\n".join(shared.table()) + "\n")
    return 0 if shared.holds else 1


if __name__ == "__main__":
    sys.exit(main())
