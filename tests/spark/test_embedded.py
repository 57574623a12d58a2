# SPDX-License-Identifier: Apache-2.0
"""The embedded broker: one for each directory, whoever starts it, and it outlives its starter."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pyarrow as pa
import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.local_access import token_of
from broker_core.base.names import TopicName
from broker_core.base.runtime import EMBEDDED_LOG_FILE, RUNTIME_FILE, RuntimeInfo
from broker_core.client import Client
from broker_core.client.admin import AdminApi
from broker_core.testing.raw_client import RawClient
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from pulsarish_spark import embedded_broker, local
from pulsarish_spark.connecting import embedded
from pulsarish_spark.connecting.connection import Address, connected
from tests.spark.ending import end
from tests.spark.queries import eventually

START = "import sys; from pulsarish_spark import embedded_broker; print(embedded_broker(sys.argv[1]).pid)"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory whose embedded broker is stopped at the end, however often it was started."""
    directory = tmp_path / "data"
    yield directory
    if (info := embedded.find(directory)) is not None:
        end(info.pid, signal.SIGTERM)


def start_in_another_process(data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", START, str(data_dir)], stdout=subprocess.PIPE, text=True)


def test_two_starters_at_once_end_with_one_broker(data_dir: Path) -> None:
    """Whoever comes second uses the first one's; it lives on when both have ended."""
    starters = [start_in_another_process(data_dir) for _ in range(3)]
    pids = {starter.communicate(timeout=300)[0].strip() for starter in starters}
    assert [starter.returncode for starter in starters] == [0, 0, 0]
    assert len(pids) == 1
    found = embedded.find(data_dir)
    assert found is not None
    assert {str(found.pid)} == pids


def test_what_it_leaves_is_for_its_owner_alone(data_dir: Path) -> None:
    """Whatever the umask of whoever starts it: the directory, the log, the lock and the ports."""
    usual = os.umask(0)
    try:
        embedded_broker(data_dir)
    finally:
        os.umask(usual)
    everything = [data_dir, *data_dir.rglob("*")]
    assert {each.name for each in everything} >= {EMBEDDED_LOG_FILE, embedded.LOCK_FILE, embedded.PORTS_FILE}
    assert {each: oct(each.stat().st_mode) for each in everything if each.stat().st_mode & 0o077} == {}


@pytest.mark.parametrize("name", [EMBEDDED_LOG_FILE, embedded.LOCK_FILE, RUNTIME_FILE])
def test_no_file_is_opened_through_a_link(name: str, data_dir: Path) -> None:
    """Whoever could leave a link in the directory had us write into any file of the user."""
    data_dir.mkdir()
    (data_dir / name).symlink_to(data_dir.with_name("elsewhere"))
    with pytest.raises(embedded.EmbeddedBrokerError, match=f"{name} is a symbolic link instead of a file"):
        embedded_broker(data_dir)
    (data_dir / name).unlink()
    assert not data_dir.with_name("elsewhere").exists()


def test_a_killed_broker_comes_back_at_the_same_address_with_its_data(data_dir: Path) -> None:
    """So that clients that were connected find it again."""
    first = embedded_broker(data_dir)
    with Client(first.service_url) as client, client.write_rows("t") as writer:
        writer.write(pa.record_batch({"value": pa.array(["a"])}))
        writer.flush()
    end(first.pid, signal.SIGKILL)
    assert embedded.find(data_dir) is None
    second = embedded_broker(data_dir)
    assert (second.service_url, second.http_url) == (first.service_url, first.http_url)
    assert second.pid != first.pid
    with Client(second.service_url) as client:
        assert client.last_entry("t").messages == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_of_a_starter_keeps_no_other_starter_waiting(data_dir: Path) -> None:
    """As where a process forks while another of its threads starts a broker: what it has open is open in both."""
    data_dir.mkdir()
    with embedded._only_starter(data_dir):
        fork = os.fork()
        if fork == 0:
            signal.pause()  # until it is killed
            os._exit(0)
    try:
        with open(data_dir / embedded.LOCK_FILE, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def test_a_guard_starts_a_dead_broker_again(data_dir: Path) -> None:
    """Whoever is at work does not have to notice."""
    first = embedded_broker(data_dir)
    with embedded.guarded(data_dir):
        os.kill(first.pid, signal.SIGKILL)

        def replaced() -> bool:
            now = embedded.find(data_dir)
            return now is not None and now.pid != first.pid

        eventually(replaced, "another broker serves the directory")


def test_a_broker_that_is_stopping_is_waited_for(data_dir: Path) -> None:
    """It cannot be found any more, but has the directory still: for seconds if a client does not read its answers."""
    first = embedded_broker(data_dir)
    token = token_of(data_dir)
    assert token is not None
    with AdminApi(first.http_url, timeout_s=60) as admin:
        admin.create_topic(TopicName.parse("many"), 1000)
    question = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
    question.getTopicsOfNamespace.request_id = 1
    question.getTopicsOfNamespace.namespace = "public/default"
    with RawClient(first.service_url, token=token.reveal()) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.tell(*[question] * 200)
        client.next_command()
        os.kill(first.pid, signal.SIGTERM)
        eventually(lambda: not (data_dir / RUNTIME_FILE).exists(), "the broker cannot be found")
        again = embedded_broker(data_dir)
    assert again.pid != first.pid
    with Client(again.service_url) as other:
        assert other.partitions("many") == 1000


def test_another_owner_of_the_port_does_not_matter(data_dir: Path) -> None:
    """The port of the last broker is only preferred: if another process has it, any other port will do."""
    first = embedded_broker(data_dir)
    end(first.pid, signal.SIGTERM)
    assert embedded.find(data_dir) is None
    port = int(first.service_url.rsplit(":", 1)[1])
    with socket.create_server(("127.0.0.1", port)):
        second = embedded_broker(data_dir)
    assert second.service_url != first.service_url


def test_a_broker_starts_whatever_ports_its_last_start_left(data_dir: Path) -> None:
    """Reliability row 5: whatever ``embedded.json`` says, the broker starts."""
    for content in (b"", b"\xff\0", b"[]", b'{"service": 99999, "http": 1}', b'{"service": 1e999, "http": 1}'):
        data_dir.mkdir(exist_ok=True)
        (data_dir / embedded.PORTS_FILE).write_bytes(content)
        end(embedded_broker(data_dir).pid, signal.SIGKILL)


def test_a_stale_runtime_file_is_not_believed(data_dir: Path) -> None:
    """After a kill it names a process that is gone, or is somebody else by now."""
    end(embedded_broker(data_dir).pid, signal.SIGKILL)
    stale = RuntimeInfo(pid=os.getpid(), service_url="pulsar://127.0.0.1:1", http_url="http://127.0.0.1:1", version="0")
    (data_dir / RUNTIME_FILE).write_bytes(stale.encode())
    assert embedded.find(data_dir) is None
    assert embedded_broker(data_dir).pid != os.getpid()


def test_a_copy_of_a_data_directory_gets_a_broker_of_its_own(data_dir: Path, tmp_path: Path) -> None:
    """What is written to the copy must not end up in the original, whose broker is named in the copied files."""
    first = embedded_broker(data_dir)
    copied = tmp_path / "a copy ünder another näme"
    shutil.copytree(data_dir, copied)
    second = embedded_broker(copied)
    try:
        assert second.pid != first.pid
        assert embedded.find(data_dir) == first
        assert embedded_broker(copied) == second
    finally:
        end(second.pid, signal.SIGTERM)


def test_the_port_of_a_broker_that_was_killed_may_be_another_one_s(data_dir: Path) -> None:
    """Its process is gone, so whoever answers there now is not the broker of this directory."""
    first = embedded_broker(data_dir)
    end(first.pid, signal.SIGKILL)
    assert embedded.find(data_dir) is None
    port = int(first.service_url.rsplit(":", 1)[1])
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    stale = msgspec.structs.replace(first, pid=gone.pid, file_number=0)
    (data_dir / RUNTIME_FILE).write_bytes(stale.encode())
    with socket.create_server(("127.0.0.1", port)):
        assert embedded.find(data_dir) is None


def test_process_and_port_of_another_broker_do_not_pass_for_this_one(data_dir: Path, tmp_path: Path) -> None:
    """In a container that was started again brokers have the numbers and ports of before: only the lock tells them
    apart."""
    end(embedded_broker(data_dir).pid, signal.SIGKILL)
    with RunningBroker(tmp_path / "another") as another:
        stale = RuntimeInfo(pid=another.pid, service_url=another.service_url, http_url=another.http_url, version="0")
        (data_dir / RUNTIME_FILE).write_bytes(stale.encode())
        assert embedded.find(data_dir) is None
        assert embedded_broker(data_dir).service_url != another.service_url


@pytest.mark.parametrize("below", ["", "data"])
def test_a_data_directory_that_cannot_be_is_named(tmp_path: Path, below: str) -> None:
    """A file, or a place below one: with the option to change, not with a bare errno."""
    (tmp_path / "file").write_text("mine")
    directory = tmp_path / "file" / below
    with pytest.raises(embedded.EmbeddedBrokerError) as caught:
        embedded_broker(directory)
    assert str(caught.value) == (
        f"{directory} cannot be the data directory of the embedded broker: Not a directory; "
        'name another: .option("data.dir", "/var/lib/pulsarish")'
    )


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    """With its own last words and the name of its log."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "FORMAT").write_bytes(b"pulsarish data directory, format 99\n")
    with pytest.raises(embedded.EmbeddedBrokerError) as caught:
        embedded_broker(directory)
    assert f"the embedded broker of {directory} ended with code " in str(caught.value)
    assert f"or name an empty directory; see {directory / 'embedded.log'}" in str(caught.value)


def test_a_directory_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    """A slip in data.dir, such as a home directory, leaves no lock and no log there."""
    (tmp_path / "holiday.jpg").write_bytes(b"not ours")
    for start in (lambda: embedded_broker(tmp_path), local(tmp_path).__enter__):
        with pytest.raises(embedded.EmbeddedBrokerError, match=r"it has holiday\.jpg but no FORMAT file; name "):
            start()
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_task_on_another_machine_does_not_start_a_broker_there(data_dir: Path) -> None:
    """A directory of the same name is there, too, and rows would be stored where nobody looks for them."""
    data_dir.mkdir()
    address = Address(data_dir=str(data_dir), seen="pulsar://127.0.0.1:1", machine="another")
    with pytest.raises(embedded.EmbeddedBrokerError, match=r"and this task runs on another one; .*service\.url"):
        address.resolve()
    assert list(data_dir.iterdir()) == []
    here = Address(data_dir=str(data_dir)).for_executors()
    assert here.resolve() == here.seen


def test_a_task_in_another_container_does_not_start_a_broker_there(data_dir: Path) -> None:
    """Its directory of the same name is another one, though the machine is the same."""
    here = Address(data_dir=str(data_dir)).for_executors()
    assert here.embedded_here == data_dir
    elsewhere = data_dir.rename(data_dir.with_name("of the driver"))
    try:
        assert here.resolve() == here.seen
        data_dir.mkdir()
        assert here.resolve() == here.seen
        assert list(data_dir.iterdir()) == []
    finally:
        data_dir.rmdir()
        elsewhere.rename(data_dir)


_FORKS_WHILE_A_CLIENT_IS_MADE = """
import os, signal
from pulsarish_spark.connecting import connection

with connection._lock:
    if (child := os.fork()) == 0:
        signal.alarm(30)  # Ends what hangs.
        connection._client_at("pulsar://127.0.0.1:1", connection.Address("pulsar://127.0.0.1:1"))
        os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_a_process_may_be_forked_while_a_thread_makes_a_client() -> None:
    """As by ``multiprocessing``: a lock that a thread holds at that moment is held for ever in the child."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKS_WHILE_A_CLIENT_IS_MADE]  # Newer Pythons warn of it.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_local_broker_leaves_nothing_behind() -> None:
    """For tests and notebooks: its own directory, gone at the end with the process."""
    with local() as broker:
        with Client(broker.service_url) as client:
            client.create_producer("t").close()
            assert client.last_entry("t").messages == 0
        directory = broker.data_dir
        assert directory.exists()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(broker.pid, 0)


def test_a_broker_of_a_notebook_ends_with_its_python() -> None:
    """No block spans the cells of a notebook; nothing is left behind all the same."""
    program = "import pulsarish_spark; broker = pulsarish_spark.notebook_broker(); print(broker.data_dir, broker.pid)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    directory, pid = done.stdout.split()
    assert not Path(directory).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


LOCAL = """
import time
from pulsarish_spark import local
with local() as broker:
    print(broker.data_dir, broker.pid, flush=True)
    time.sleep(3600)
"""


def test_a_local_broker_stops_when_its_owner_is_killed() -> None:
    """As a notebook's kernel is that does not end in time; nobody is left to stop it."""
    with subprocess.Popen([sys.executable, "-c", LOCAL], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        broker = psutil.Process(int(owner.stdout.readline().split()[1]))
        owner.kill()
    broker.wait(60)


def test_what_killed_owners_leave_is_swept_and_nothing_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder goes once its owner and its broker are both dead, in whichever order; what nobody made here stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    not_ours = tmp_path / "pulsarish-notes"
    not_ours.mkdir()
    command = [sys.executable, "-c", LOCAL]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as second,
    ):
        said = [owner.stdout.readline().split() for owner in (first, second) if owner.stdout]
        folders, brokers = [Path(words[0]) for words in said], [int(words[1]) for words in said]
        os.kill(brokers[0], signal.SIGSTOP)  # or it would stop by itself, as its owner is gone
        end(first.pid, signal.SIGKILL)
        end(brokers[1], signal.SIGKILL)
        with local():
            assert [folder.exists() for folder in folders] == [True, True]
        end(brokers[0], signal.SIGKILL)
        end(second.pid, signal.SIGKILL)
    with local() as broker:
        assert sorted(tmp_path.iterdir()) == sorted([not_ours, broker.data_dir])


def test_a_local_broker_is_never_somebody_else_s(data_dir: Path) -> None:
    """Of a directory that is in use it would hand out the other broker, under its own process id, and not stop it."""
    other = embedded_broker(data_dir)
    with pytest.raises(embedded.EmbeddedBrokerError, match=f"is in use by process {other.pid}"), local(data_dir):
        pass
    assert embedded.find(data_dir) == other


def test_a_local_broker_on_a_directory_that_cannot_be_is_explained(tmp_path: Path) -> None:
    """As for the one that the source starts; an empty name is not the working directory."""
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(embedded.EmbeddedBrokerError, match="file cannot be the data directory"),
        local(tmp_path / "file"),
    ):
        pass
    for start in (local("").__enter__, lambda: embedded_broker("")):
        with pytest.raises(ConfigError, match="the data directory is an empty text; name one"):
            start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_the_directory_of_another_user_is_refused_unread(data_dir: Path) -> None:
    """Its owner's broker would be sent everything that is written."""
    data_dir.mkdir()
    os.chown(data_dir, 65534, 65534)
    with pytest.raises(embedded.EmbeddedBrokerError, match="belongs to user"):
        embedded_broker(data_dir)
    assert not list(data_dir.iterdir())


def test_the_token_is_found_by_the_address_and_travels_to_tasks_unseen(data_dir: Path) -> None:
    """A task may run where the directory is not; nothing that shows an address shows the token."""
    address = Address(data_dir=str(data_dir)).for_executors()
    token = token_of(data_dir)
    assert token is not None
    assert address.credentials.token == token
    assert token.reveal() not in repr(address)
    elsewhere = replace(address, directory=(0, 0))
    assert elsewhere.embedded_here is None
    with connected(elsewhere) as client:
        assert client.partitions("t") == 0
