# SPDX-License-Identifier: Apache-2.0
"""Values that are sent from files, and received into files."""

import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_core.base.errors import AlreadyClosedError, PulsarishError, UsageError
from broker_core.client import Client, FileValue
from broker_core.client.chunks import chunk_receiving
from broker_core.client.chunks.chunk_assembly import PartsInFile
from broker_core.client.messages.file_value import in_memory
from broker_core.testing.running_broker import RunningBroker
from tests.client.helpers import WAIT_S
from tests.client.test_chunking import CHUNK_BYTES, chunking, large


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of any size in chunks are worth a file."""
    monkeypatch.setattr(chunk_receiving, "FILE_BYTES_MIN", 0)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[bytes], Path]:
    """A file with this content."""

    def make(content: bytes) -> Path:
        path = tmp_path / "value"
        path.write_bytes(content)
        return path

    return make


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 20 * CHUNK_BYTES + 1])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_file_is_sent_as_its_bytes_would_be(
    client: Client, topic: str, made: Callable[[bytes], Path], size: int, compression: str
) -> None:
    """5.1.2: as many chunks, or one ordinary message, with the same value and fields."""
    value = os.urandom(size)
    with client.subscribe(topic, "s") as consumer, chunking(client, topic, compression=compression) as producer:
        as_bytes = producer.send(value, key="k")
        as_file = producer.send(FileValue(made(value)), key="k")
        assert len(as_file.positions) == len(as_bytes.positions)
        for _ in range(2):
            got = consumer.receive(WAIT_S)
            assert (got.value, got.key, got.file) == (value, "k", None)


def test_a_producer_without_chunks_sends_files_too(client: Client, topic: str, made: Callable[[bytes], Path]) -> None:
    """The value is read as a whole then, and is limited as any other."""
    with client.subscribe(topic, "s") as consumer, client.create_producer(topic) as producer:
        producer.send(FileValue(made(b"content")))
        assert consumer.receive(WAIT_S).value == b"content"
        with pytest.raises(UsageError, match="maxMessageSize"):
            producer.send(FileValue(made(bytes(6 * 1024 * 1024))))


def test_a_file_that_was_changed_is_not_sent(client: Client, topic: str, made: Callable[[bytes], Path]) -> None:
    """Its message fails, as parts of two contents are no value; the next one is sent."""
    with client.subscribe(topic, "s") as consumer, chunking(client, topic) as producer:
        changed = FileValue(path := made(large("x", 4)))
        with path.open("ab") as file:
            file.write(b"more")
        with pytest.raises(UsageError, match="was changed while it was sent"):
            producer.send(changed)
        producer.send(FileValue(path))
        assert consumer.receive(WAIT_S).value == large("x", 4) + b"more"
        assert producer.stats().pending_messages == 0


def test_a_file_that_cannot_be_sent_stops_a_producer_that_stops_after_failures(
    client: Client, topic: str, made: Callable[[bytes], Path]
) -> None:
    """Nothing is sent behind it."""
    producer = chunking(client, topic, stop_after_failure=True)
    changed = FileValue(path := made(large("x", 4)))
    path.write_bytes(b"other")
    fates: list[PulsarishError | None] = []
    producer.send_async(changed, callback=lambda _, failure: fates.append(failure))
    producer.send_async(b"next", callback=lambda _, failure: fates.append(failure))
    producer.close()
    assert [type(each) for each in fates] == [UsageError, AlreadyClosedError]


def test_a_pipe_is_no_value_in_a_file() -> None:
    """It has no parts that could be read again."""
    reads, writes = os.pipe()
    os.close(writes)
    with pytest.raises(UsageError, match="is no regular file"):
        FileValue(reads)


def test_files_survive_a_killed_broker(tmp_path: Path, made: Callable[[bytes], Path], small_files: None) -> None:
    """5.1.6, 5.3.9: chunks without receipt are read again for the next connection, and received once."""
    value = os.urandom(300 * CHUNK_BYTES)
    with (
        RunningBroker(tmp_path / "data") as broker,
        Client(broker.service_url) as client,
        chunking(client, "t", block_if_queue_full=True) as producer,
        client.subscribe("t", "s", large_values_in_files=True) as consumer,
    ):
        path = made(value)
        for _ in range(5):
            producer.send_async(FileValue(path))
        broker.kill()
        broker.start()
        producer.flush()
        assert [consumer.receive(WAIT_S).value == value for _ in range(5)] == [True] * 5


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_large_value_waits_in_a_file_if_asked(
    client: Client, topic: str, small_files: None, compression: str
) -> None:
    """The message is as any other; what is compressed is in memory."""
    value = large("x", 5)
    with (
        client.subscribe(topic, "s", large_values_in_files=True) as consumer,
        client.create_reader(topic, large_values_in_files=True) as reader,
        chunking(client, topic, compression=compression) as producer,
    ):
        producer.send("small")
        sent = producer.send(os.urandom(CHUNK_BYTES) + value)
        for take in (consumer.receive, reader.read_next):
            assert take(WAIT_S).file is None
            got = take(WAIT_S)
            assert got.value is not None
            assert (got.value[CHUNK_BYTES:], got.message_id) == (value, sent)
            assert (got.file is None) == (compression != "none")
            assert got.file is None or b"".join(got.file.pieces()) == got.value
        consumer.acknowledge(got.message_id, wait=True)


@contextmanager
def _files_of_at_most(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_parts_that_find_no_room_in_a_file_wait_in_memory() -> None:
    """A full disk loses nothing, at whatever byte it is full."""
    for room in (1, 10, 15):
        parts = PartsInFile()
        with _files_of_at_most(room):
            for part in (b"a" * 10, b"b" * 10, b"c" * 10):
                parts.append(part)
        assert in_memory(parts.joined()) == b"a" * 10 + b"b" * 10 + b"c" * 10


def test_parts_wait_in_memory_where_no_file_can_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing TMPDIR loses nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    parts = PartsInFile()
    parts.append(b"a")
    parts.append(b"b")
    assert parts.joined() == b"ab"
