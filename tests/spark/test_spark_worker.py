# SPDX-License-Identifier: Apache-2.0
"""The two habits of ours in Spark's workers: what was received is acknowledged at once, imports are not collected."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pulsarish_spark.batch_reader import PulsarishBatchReader
from pulsarish_spark.sink.writer import PulsarishBatchWriter, PulsarishStreamWriter
from pulsarish_spark.stream_reader import PulsarishStreamReader
from pulsarish_spark.workers.spark_worker import SentToWorkers, acknowledge_received

_TCP_INFO_UNACKED = 24  # where struct tcp_info has tcpi_unacked
_LOOKS = 200  # far fewer milliseconds than the kernel delays an acknowledgement
_ATTEMPTS = 100
_MANY = 2000

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the kernel has no TCP_QUICKACK")


class Task(SentToWorkers):
    """Stands for a reader on its way to a worker."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection whose second end delays its acknowledgements, as after requests and answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    with near, far:
        yield near, far


def unacknowledged(sender: socket.socket) -> int:
    """Segments that the other end has not acknowledged."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    found: int = struct.unpack_from("=I", info, _TCP_INFO_UNACKED)[0]
    return found


def send_unacknowledged(near: socket.socket, far: socket.socket) -> None:
    """Send something that the far end has received and not acknowledged yet."""
    for _ in range(_ATTEMPTS):
        for _ in range(4):
            near.sendall(b"question")
            far.recv(64)
            far.sendall(b"answer")
            near.recv(64)
        near.sendall(b"first half")
        far.recv(64)
        if unacknowledged(near):
            return
    pytest.fail("this kernel never delays an acknowledgement")


def test_what_was_received_is_acknowledged_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    """A sender that waits for an acknowledgement before its second piece does not wait for the kernel's delay."""
    near, far = pair
    send_unacknowledged(near, far)
    acknowledge_received()
    assert any(unacknowledged(near) == 0 for _ in range(_LOOKS))


def test_unpickling_in_a_worker_acknowledges(pair: tuple[socket.socket, socket.socket]) -> None:
    """Between the two pieces of a task a worker runs nothing of ours but the unpickling."""
    near, far = pair
    pickled = pickle.dumps(Task("read"))
    send_unacknowledged(near, far)
    assert pickle.loads(pickled).name == "read"
    assert any(unacknowledged(near) == 0 for _ in range(_LOOKS))


def test_no_file_is_left_open_by_it(pair: tuple[socket.socket, socket.socket]) -> None:
    """Connections are borrowed from their owners, not taken."""
    before = sorted(os.listdir("/proc/self/fd"))
    acknowledge_received()
    assert sorted(os.listdir("/proc/self/fd")) == before
    pair[0].sendall(b"still open")
    assert pair[1].recv(64) == b"still open"


@pytest.mark.parametrize(
    "kind", [PulsarishBatchReader, PulsarishStreamReader, PulsarishBatchWriter, PulsarishStreamWriter]
)
def test_everything_that_spark_sends_to_workers_does_it(kind: type) -> None:
    """Readers and writers alike."""
    assert issubclass(kind, SentToWorkers)


def test_connections_that_close_meanwhile_do_no_harm() -> None:
    """A worker that is used again may have a client of an earlier task, whose thread closes what it needs no more."""
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            for each in socket.socketpair():
                each.close()

    others = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in others:
        thread.start()
    try:
        for _ in range(_MANY):
            acknowledge_received()
    finally:
        is_over.set()
        for thread in others:
            thread.join()


def test_a_default_timeout_of_the_application_changes_no_connection(pair: tuple[socket.socket, socket.socket]) -> None:
    """Spark reads from its connection to a worker as from a file, which fails once that does not block."""
    socket.setdefaulttimeout(60)
    try:
        acknowledge_received()
    finally:
        socket.setdefaulttimeout(None)
    assert [os.get_blocking(each.fileno()) for each in pair] == [True, True]


def test_imports_are_out_of_the_collector_s_sight_after_the_first_task() -> None:
    """Spark collects garbage after each task of a reused worker, which would walk through every import."""
    code = (
        "import gc; import pulsarish_spark.tasks.range_reader as _;"
        "from pulsarish_spark.workers.spark_worker import freeze_imports;"
        "freeze_imports(); frozen = gc.get_freeze_count(); freeze_imports();"
        "print(frozen > 10_000, gc.get_freeze_count() == frozen, len(gc.get_objects()) < frozen / 10)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
