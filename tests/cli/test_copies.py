# SPDX-License-Identifier: Apache-2.0
"""``pulsarish backup`` and ``restore``: of a broker under load, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from broker_core.base.errors import OperationTimeoutError
from broker_core.base.names import TopicName
from broker_core.base.positions import MESSAGE_ID_EARLIEST
from broker_core.base.private_files import open_to_others
from broker_core.cli.exits import Exit
from broker_core.client import Client, Message
from broker_core.client.admin import AdminApi
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, runner

SMALL_LEDGERS: Final = {
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "retentionCheckIntervalInSeconds": 1,
}

TIMEOUT_S: Final = 60.0


def _number(message: Message) -> int:
    assert message.value is not None
    return int(message.value)


class Load:
    """Numbers that are sent as messages, read and acknowledged, and topics that come and go.

    Attributes:
        confirmed: Numbers below have receipts: as messages of "kept", which nobody reads, and of "work".
        acked: Numbers below were acknowledged of "work", or are about to be.
    """

    def __init__(self, broker: RunningBroker) -> None:
        self.confirmed = self.acked = 0
        self._broker = broker
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The load, from when it has confirmed something; AssertionError at the end if a part of it has failed."""
        with Client(self._broker.service_url) as client:
            client.subscribe("work", "s", initial_position="earliest").close()
            failures: list[Exception] = []

            def guarded(part: Callable[[Client], None]) -> None:
                try:
                    while not self._over.is_set():
                        part(client)
                except Exception as failure:  # noqa: BLE001 # it is told below
                    failures.append(failure)

            threads = [threading.Thread(target=guarded, args=(part,)) for part in (self._send, self._read, self._pass)]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            assert failures == []

    def until(self, confirmed: int) -> None:
        """Return when so many numbers are confirmed."""
        while self.confirmed < confirmed:
            assert not self._over.wait(0.01)

    def _send(self, client: Client) -> None:
        with client.create_producer("kept") as kept, client.create_producer("work") as work:
            while not self._over.is_set():
                for number in range(self.confirmed, self.confirmed + 20):
                    kept.send_async(b"%d" % number)
                    work.send_async(b"%d" % number)
                    if number % 5 == 0:
                        kept.flush()  # an entry of its own
                kept.flush()
                work.flush()
                self.confirmed += 20

    def _read(self, client: Client) -> None:
        with client.subscribe("work", "s") as consumer:
            while not self._over.is_set():
                try:
                    message = consumer.receive(timeout_s=0.5)
                except OperationTimeoutError:
                    continue
                self.acked = _number(message) + 1
                consumer.acknowledge(message)

    def _pass(self, client: Client) -> None:
        with client.create_producer("passing") as producer:
            for _ in range(3):
                producer.send(b"x")
        with AdminApi(self._broker.http_url, timeout_s=TIMEOUT_S) as admin:
            admin.delete_topic(TopicName.parse("passing"), force=True)


def kept(client: Client) -> list[int]:
    """All numbers of the topic "kept"."""
    found = []
    with client.create_reader("kept", MESSAGE_ID_EARLIEST) as reader:
        while reader.has_message_available():
            found.append(_number(reader.read_next(TIMEOUT_S)))
    return found


def unacknowledged(client: Client, last: int) -> list[int]:
    """The numbers that subscription "s" of "work" has still, up to ``last``."""
    found: list[int] = []
    with client.subscribe("work", "s") as consumer:
        while not found or found[-1] < last:
            found.append(_number(consumer.receive(timeout_s=TIMEOUT_S)))
    return found


def test_a_backup_under_load_has_all_that_was_confirmed_before(tmp_path: Path) -> None:
    """Reliability rows 1, 2: without damage, in order, and acknowledgements are none too many."""
    with RunningBroker(tmp_path / "data", SMALL_LEDGERS) as broker:
        load, pulsarish = Load(broker), runner(tmp_path, PULSARISH_DATA_DIR=str(broker.data_dir))
        known: list[tuple[int, int]] = []
        with load.running():
            for number in range(3):
                load.until(200 * (number + 1))
                before = load.confirmed
                done = pulsarish("backup", str(tmp_path / f"backup-{number}"))
                assert done.returncode == 0, done.stderr
                known.append((before, load.acked))
    for number, (confirmed, acked) in enumerate(known):
        copy = tmp_path / f"backup-{number}"
        checked = pulsarish("doctor", "--data-dir", str(copy))
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with RunningBroker(copy, SMALL_LEDGERS) as restored, Client(restored.service_url) as client:
            found = kept(client)
            assert found == list(range(len(found)))
            assert len(found) >= confirmed
            with client.create_producer("work") as producer:
                producer.send(b"%d" % 1_000_000_000)
            *work, _ = unacknowledged(client, 1_000_000_000)
            assert work == list(range(work[0], work[-1] + 1)) if work else acked >= confirmed
            assert not work or (work[0] <= acked and work[-1] + 1 >= confirmed)
            assert "damage" not in restored.stderr


def test_a_backup_is_put_back_and_what_was_there_stays_beside_it(tmp_path: Path) -> None:
    """The whole way, and new messages have ids that none had before."""
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        pulsarish = runner(tmp_path, PULSARISH_DATA_DIR=str(broker.data_dir))
        with client.create_producer("kept") as producer:
            producer.send(b"0")
            assert pulsarish("backup", "backup").returncode == 0
            lost = producer.send(b"1")
        refused = pulsarish("restore", "backup", "--replace")
        assert refused.returncode != 0
        assert b"is in use by process" in refused.stderr
        broker.stop()
        refused = pulsarish("restore", "backup")
        assert b"has data of a broker in it" in refused.stderr
        done = pulsarish("restore", "backup", "--replace")
        assert done.returncode == 0, done.stderr
        assert b"1 topic" in done.stderr
        (aside,) = tmp_path.glob("data.before-*")
        assert pulsarish("doctor", "--data-dir", str(aside)).returncode == 0
        broker.start()
        with client.create_producer("kept") as producer:
            new = producer.send(b"2")
        assert new > lost
        assert kept(client) == [0, 2]


def test_a_backup_of_a_directory_where_no_broker_runs(tmp_path: Path, lonely: Pulsarish) -> None:
    """Another directory than the default one is named as everywhere; nobody else can read the copy."""
    with (
        RunningBroker(tmp_path / "data") as broker,
        Client(broker.service_url) as client,
        client.create_producer("kept") as producer,
    ):
        producer.send(b"0")
    assert lonely("backup", "copy", "--data-dir", "data").returncode == 0
    assert lonely("doctor", "--data-dir", "copy").returncode == 0
    folders = [tmp_path / "copy", *(each for each in (tmp_path / "copy").iterdir() if each.is_dir())]
    assert [path for folder in folders for path in open_to_others(str(folder))] == []
    (tmp_path / "data" / "ledgers" / "1.log").unlink()
    damaged = lonely("backup", "another", "--data-dir", "data")
    assert damaged.returncode == Exit.DAMAGE
    assert b"the original lacks ledgers/1.log" in damaged.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("backup", "copy"), b"is no data directory"),
        (("backup", "copy", "--data-dir", "nowhere"), b"is no data directory"),
        (("restore", "nowhere"), b"does not exist"),
        (("restore", "."), b"is no data directory"),
    ],
)
def test_what_is_no_data_directory_is_not_copied(lonely: Pulsarish, arguments: tuple[str, ...], text: bytes) -> None:
    """One line, and nothing is made."""
    done = lonely(*arguments)
    assert done.returncode != 0
    assert text in done.stderr
