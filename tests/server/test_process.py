# SPDX-License-Identifier: Apache-2.0
"""The broker as a process: how it starts, what it refuses, and every way in which it ends."""

import contextlib
import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest

from broker_core import __version__
from broker_core.base.errors import ConnectionLostError
from broker_core.base.runtime import RUNTIME_FILE, RuntimeInfo
from broker_core.client import Client
from broker_core.server.process import EXIT_DISK_FAILED, EXIT_FAILURE, EXIT_USAGE
from broker_core.storage.handles import HANDLES_MAX
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker
from broker_core.wire.core.hot_commands import parse_message, parse_receipt, send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata
from tests.client.helpers import eventually

METADATA = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
BODY = seal_entry(METADATA, b"x" * 100)
COLUMNAR = {"pyarrow", "numpy", "pandas", "lz4", "zstandard", "cramjam", "rich", "pyspark"}


def stored_entries(broker: RunningBroker, topic: str, count: int) -> list[int]:
    """Entry ids of a topic, read from its beginning by a fresh consumer."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "check", permits=count))
        heads = [parse_message(client.next_frame().command) for _ in range(count)]
        return [head.entry for head in heads if head is not None]


def send_until_it_ends(client: RawClient, first: int, body: bytes) -> int:
    """Send one after the other until the connection is lost; how many were confirmed. Anything but a receipt counts
    as refused."""
    confirmed = 0
    try:
        while True:
            client.send_entry(0, first + confirmed, body)
            if client.next_command().type == BaseCommand.SEND_RECEIPT:
                confirmed += 1
    except (ConnectionLostError, ConnectionResetError):
        return confirmed


def test_it_is_ready_within_a_second_with_little_memory(data_dir: Path) -> None:
    """Start < 1 s, idle RSS < 80 MiB; in processor time, which other work on the machine hardly changes."""
    with RunningBroker(data_dir) as broker:
        process = psutil.Process(broker.pid)
        assert sum(process.cpu_times()[:2]) < 2  # a busy machine has cold caches
        assert process.memory_info().rss < 80 * 2**20


def test_the_runtime_file_says_where_it_is_and_goes_with_it(data_dir: Path) -> None:
    """Written when ready, removed by a graceful stop, replaced after a kill."""
    with RunningBroker(data_dir) as broker:
        number = (data_dir / RUNTIME_FILE).stat().st_ino
        info = RuntimeInfo.decode((data_dir / RUNTIME_FILE).read_bytes(), number)
        assert info == RuntimeInfo(
            pid=broker.pid,
            service_url=broker.service_url,
            http_url=broker.http_url,
            version=__version__,
            file_number=number,
        )
        broker.kill()
        assert (data_dir / RUNTIME_FILE).exists()
        broker.start()
        number = (data_dir / RUNTIME_FILE).stat().st_ino
        again = RuntimeInfo.decode((data_dir / RUNTIME_FILE).read_bytes(), number)
        assert again is not None
        assert again.pid == broker.pid
        assert broker.stop() == 0
        assert not (data_dir / RUNTIME_FILE).exists()


def test_ready_is_the_only_line_on_stdout(data_dir: Path) -> None:
    """Programs read it."""
    command = [sys.executable, "-m", "broker_core.server", "--data-dir", str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    words = line.split()
    assert words[0] == "ready"
    assert words[1].startswith("pulsar://127.0.0.1:")
    assert words[2].startswith("http://127.0.0.1:")
    assert rest == ""
    assert process.returncode == 0


def test_the_broker_process_loads_no_columnar_libraries(data_dir: Path) -> None:
    """They would cost it a hundred MiB and half a second; it never looks into a batch."""
    code = (
        "import sys, os, signal, threading, json\n"
        "from broker_core.base.settings import Settings\n"
        "from broker_core.server.process import serve\n"
        "from pathlib import Path\n"
        "def on_ready(info):\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        f"serve(Settings(), data_dir=Path({str(data_dir)!r}), port=0, http_port=0, on_ready=on_ready)\n"
    )
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert loaded & COLUMNAR == set()


def test_it_works_without_uvloop(data_dir: Path) -> None:
    """uvloop is faster, not needed."""
    code = (
        "import sys\n"
        "sys.modules['uvloop'] = None\n"
        f"sys.argv = ['broker', '--data-dir', {str(data_dir)!r}, '--settings', '{{\"openToLocalUsers\":true}}']\n"
        "from broker_core.server.__main__ import main\n"
        "sys.exit(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        service_url = process.stdout.readline().split()[1]
        with RawClient(service_url) as client:
            must_succeed(client.open_producer("t"))
            must_succeed(client.subscribe("t", "s", permits=2000))
            for number in range(1000):
                client.send_entry(0, number, BODY)
            kinds = Counter(client.next_command().type for _ in range(2000))
        assert kinds == {BaseCommand.SEND_RECEIPT: 1000, BaseCommand.MESSAGE: 1000}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_low_limit_of_open_files_is_raised(data_dir: Path) -> None:
    """Row 32: a broker may have more connections than many systems give descriptors to a process by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with RunningBroker(data_dir, {"maxConnections": 1000}) as broker:
            raised, _ = psutil.Process(broker.pid).rlimit(psutil.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised > 1000 + HANDLES_MAX or raised == hard


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.1", "example.com", "::"])
def test_a_public_address_is_refused_without_authentication(data_dir: Path, host: str) -> None:
    """Whoever reaches the port could read and delete everything."""
    with pytest.raises(BrokerExitedError, match="refusing to listen") as ended:
        RunningBroker(data_dir, {"bindAddress": host}).start()
    assert f"code {EXIT_USAGE}" in str(ended.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_needs_a_name_for_clients(data_dir: Path, host: str) -> None:
    """LOOKUP tells clients where to go, and nobody can go to 0.0.0.0."""
    with pytest.raises(BrokerExitedError, match="advertisedAddress"):
        RunningBroker(data_dir, {"bindAddress": host}, is_open=False).start()


def test_a_broker_beyond_the_loopback_address_is_called_by_its_name(data_dir: Path) -> None:
    """Clients are told the advertised name; pages that rebind a name of their own are kept out by it."""
    settings = {"bindAddress": "0.0.0.0", "advertisedAddress": "localhost"}
    with RunningBroker(data_dir, settings, is_open=False) as broker:
        assert broker.service_url == f"pulsar://localhost:{broker.port}"
        assert "travel unencrypted" in broker.stderr
        with Client(broker.service_url) as client:
            client.create_producer("t").close()
        for name, status in {"localhost": 200, "10.1.2.3": 200, "pages.example": 403}.items():
            host = {"Host": f"{name}:{broker.http_port}"}
            answer = httpx.get(f"http://127.0.0.1:{broker.http_port}/admin/v2/brokers/version", headers=host)
            assert answer.status_code == status, name


def test_a_broker_that_is_open_to_the_network_says_so(data_dir: Path) -> None:
    """In the log, and lets everybody in."""
    settings = {"bindAddress": "0.0.0.0", "advertisedAddress": "127.0.0.1", "openToNetwork": True}
    with RunningBroker(data_dir, settings) as broker:
        assert "whoever reaches the ports may do everything" in broker.stderr
        with RawClient(broker.service_url) as stranger:
            must_succeed(stranger.open_producer("t"))


def test_an_unknown_setting_is_refused(data_dir: Path) -> None:
    """A typo must not silently leave a default in force."""
    with pytest.raises(BrokerExitedError, match="maxMesageSize") as ended:
        RunningBroker(data_dir, {"maxMesageSize": 5}).start()
    assert f"code {EXIT_USAGE}" in str(ended.value)


def test_a_taken_port_is_refused_and_the_data_directory_is_free_again(data_dir: Path, tmp_path: Path) -> None:
    """The message says what is wrong."""
    with RunningBroker(tmp_path / "other") as other:
        with pytest.raises(BrokerExitedError, match="in use") as ended:
            RunningBroker(data_dir, port=other.port).start()
        assert f"code {EXIT_FAILURE}" in str(ended.value)
    with RunningBroker(data_dir):
        pass


def test_a_second_broker_on_the_same_data_is_refused_naming_the_first(data_dir: Path) -> None:
    """Row 17."""
    with RunningBroker(data_dir) as first:
        with pytest.raises(BrokerExitedError, match=str(first.pid)):
            RunningBroker(data_dir).start()
        assert first.stop() == 0


def test_a_graceful_stop_answers_what_it_took_and_keeps_it(data_dir: Path) -> None:
    """Row 48: SIGTERM under load; every receipt is in the log afterwards, in order."""
    with RunningBroker(data_dir) as broker:
        client = RawClient(broker.service_url)
        must_succeed(client.open_producer("load"))
        stopping = threading.Event()

        def flood() -> None:
            number = 0
            try:
                while not stopping.is_set():
                    client.socket.sendall(
                        b"".join(send_frame_head(0, number + i, 1, len(BODY)) + BODY for i in range(200))
                    )
                    number += 200
            except OSError:
                return

        sender = threading.Thread(target=flood)
        sender.start()
        confirmed: list[tuple[int, int]] = []
        try:
            while True:
                receipt = parse_receipt(client.next_frame().command)
                assert receipt is not None
                confirmed.append((receipt.sequence_id, receipt.entry))
                if len(confirmed) == 2000:
                    broker.signal(signal.SIGTERM)
        except (ConnectionLostError, ConnectionResetError):
            pass
        stopping.set()
        client.close()
        sender.join()
        assert broker.wait() == 0
        assert [sequence_id for sequence_id, _ in confirmed] == list(range(len(confirmed)))
        broker.start()
        assert stored_entries(broker, "load", len(confirmed)) == [entry for _, entry in confirmed]


def refuses_connections(broker: RunningBroker) -> bool:
    """Whether nobody listens on its port any more, the first thing of a graceful stop."""
    try:
        socket.create_connection(("127.0.0.1", broker.port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_second_signal_ends_it_at_once(data_dir: Path) -> None:
    """A client that does not read holds up the graceful stop; nobody has to wait for it."""
    with RunningBroker(data_dir, {"writeBufferHighBytes": 64 * 2**20}) as broker:
        with RawClient(broker.service_url) as producer:
            must_succeed(producer.open_producer("big"))
            body = seal_entry(METADATA, bytes(1_000_000))
            for number in range(40):
                producer.send_entry(0, number, body)
                producer.next_command()
        with RawClient(broker.service_url) as stuck:
            must_succeed(stuck.subscribe("big", "s", permits=1000))
            stuck.next_frame()
            broker.signal(signal.SIGTERM)
            eventually(lambda: refuses_connections(broker), "the first signal has been heard")
            with pytest.raises(subprocess.TimeoutExpired):
                broker.wait(0.5)
            broker.signal(signal.SIGTERM)
            assert broker.wait() == -signal.SIGTERM


def test_it_stops_by_itself_when_nobody_is_connected(data_dir: Path) -> None:
    """idleStopSeconds; a connected client keeps it up."""
    with RunningBroker(data_dir, {"idleStopSeconds": 5}) as broker:
        client = RawClient(broker.service_url)
        with pytest.raises(subprocess.TimeoutExpired):
            broker.wait(6)
        client.close()
        assert broker.wait() == 0


def test_a_data_directory_that_is_taken_away_ends_the_process(data_dir: Path) -> None:
    """It could keep nothing any more; and the file of a broker that replaced it is left alone."""
    with RunningBroker(data_dir) as broker:
        shutil.rmtree(data_dir)
        with RunningBroker(data_dir) as successor:
            assert broker.wait() == EXIT_DISK_FAILED
            assert "removed or replaced" in broker.stderr
            with (data_dir / RUNTIME_FILE).open("rb") as runtime_file:
                info = RuntimeInfo.read(runtime_file)
            assert info is not None
            assert info.pid == successor.pid


def test_a_failing_disk_ends_the_process_and_no_receipt_is_sent(data_dir: Path) -> None:
    """Row 10: fail-stop at once, with a message; the next start has all that was confirmed."""
    with RunningBroker(data_dir) as broker:
        with RawClient(broker.service_url) as client:
            must_succeed(client.open_producer("failing"))
            for number in range(10):
                client.send_entry(0, number, BODY)
                assert client.next_command().type == BaseCommand.SEND_RECEIPT
            # From now on no file may grow beyond a mebibyte: the kernel refuses such an append with EFBIG.
            psutil.Process(broker.pid).rlimit(psutil.RLIMIT_FSIZE, (2**20, resource.RLIM_INFINITY))
            confirmed = 10 + send_until_it_ends(client, 10, seal_entry(METADATA, bytes(300_000)))
        assert broker.wait() == EXIT_DISK_FAILED
        assert "the disk failed" in broker.stderr
        broker.start()
        assert confirmed < 14
        assert stored_entries(broker, "failing", confirmed) == list(range(confirmed))


def test_what_one_client_has_is_not_given_to_another_by_a_graceful_stop(data_dir: Path) -> None:
    """2.9: the first does not know yet that it is over, and would hold the same message at the same time."""
    shared = CommandSubscribe.Shared
    with RunningBroker(data_dir) as broker, contextlib.ExitStack() as closing:
        clients = [closing.enter_context(RawClient(broker.service_url)) for _ in range(8)]
        must_succeed(clients[0].open_producer("held"))
        must_succeed(clients[0].subscribe("held", "s", 0, kind=shared, permits=10))
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        clients[0].send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"x"))
        told = {clients[0].next_command().type, clients[0].next_command().type}
        assert told == {BaseCommand.SEND_RECEIPT, BaseCommand.MESSAGE}
        for number, client in enumerate(clients[1:], 1):
            must_succeed(client.subscribe("held", "s", number, kind=shared, permits=10))
        assert broker.stop() == 0
        assert [_messages_until_the_end(client) for client in clients] == [0] * len(clients)


def _messages_until_the_end(client: RawClient) -> int:
    messages = 0
    with contextlib.suppress(ConnectionLostError, ConnectionResetError):
        while True:
            messages += client.next_command().type == BaseCommand.MESSAGE
    return messages
