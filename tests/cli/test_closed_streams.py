# SPDX-License-Identifier: Apache-2.0
"""Commands whose stdout or stderr nobody reads: nothing is stored or acknowledged in part and in silence."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, command_line, environment

WAIT_S = 120
MANY = 30_000


def _shell(home: Path, script: str) -> subprocess.CompletedProcess[bytes]:
    """Run a pipeline of bash, in which ``pulsarish`` is the command; the exit code is that of its failed part."""
    own = shlex.join(command_line())
    text = f'set -o pipefail; pulsarish() {{ {own} "$@"; }}; {script}'
    return subprocess.run(["bash", "-c", text], capture_output=True, env=environment(home), timeout=WAIT_S, check=False)


def _stored(broker: RunningBroker, topic: str) -> int:
    with Client(broker.service_url) as client, client.create_reader(topic) as reader:
        count = 0
        while reader.has_message_available():
            reader.read_next(WAIT_S)
            count += 1
    return count


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_all_of_the_input_is_sent_when_nobody_reads_the_ids_any_more(
    broker: RunningBroker, tmp_path: Path, topic: str, output: str
) -> None:
    """``head -1`` takes one id; the command goes on to the end of its input."""
    done = _shell(tmp_path, f"seq {MANY} | pulsarish produce {topic} -o {output} --url {broker.service_url} | head -1")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1), done.stderr
    assert _stored(broker, topic) == MANY


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_the_input_is_sent_with_closed_streams(broker: RunningBroker, tmp_path: Path, topic: str, closed: str) -> None:
    """Ids and talk go nowhere."""
    done = _shell(tmp_path, f"seq 1000 | pulsarish produce {topic} --url {broker.service_url} {closed}")
    assert (done.returncode, _stored(broker, topic)) == (0, 1000), done.stderr


def test_a_full_disk_under_the_ids_ends_the_command_with_the_number_of_stored_messages(
    broker: RunningBroker, tmp_path: Path, topic: str
) -> None:
    """Exit code 1, and what is stored is told exactly."""
    done = _shell(tmp_path, f"seq {MANY} | pulsarish produce {topic} --url {broker.service_url} > /dev/full")
    stored = _stored(broker, topic)
    assert (done.returncode, 0 < stored < MANY) == (1, True)
    assert f"confirmed as stored: {stored:,} of {stored:,} messages" in done.stderr.decode()
    assert b"No space left" in done.stderr


def test_a_consumer_acknowledges_nothing_that_a_closed_stdout_would_swallow(
    broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path, topic: str
) -> None:
    """With a subscription a closed stdout is refused; without one nothing can be lost."""
    pulsarish("produce", topic, "-m", "one")
    done = _shell(tmp_path, f"pulsarish consume {topic} -s s --exit --url {broker.service_url} >&-")
    assert (done.returncode, b"stdout is closed" in done.stderr) == (2, True)
    assert b"one" in pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout
    done = _shell(tmp_path, f"pulsarish consume {topic} --exit --url {broker.service_url} >&-")
    assert done.returncode == 0


@pytest.mark.parametrize("sink", ["| head -c 1 > /dev/null", "> /dev/full"])
def test_messages_that_were_not_printed_come_again(
    broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path, topic: str, sink: str
) -> None:
    """A pipe that breaks and a disk that is full: the subscription keeps at least all but what a pipe had room for."""
    pulsarish("produce", topic, stdin=b"\n".join(b"%d" % number + b"x" * 1000 for number in range(2000)))
    pulsarish("sub", "create", topic, "s", "--from", "earliest")
    done = _shell(tmp_path, f"pulsarish consume {topic} -s s --exit -o raw --url {broker.service_url} {sink}")
    again = pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout
    assert done.returncode == (1 if "full" in sink else 0), done.stderr
    assert again.count(b"\n") >= 1000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_loses_no_acknowledgement_of_what_was_printed(
    broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path, topic: str, interruptible: None, number: signal.Signals
) -> None:
    """Acknowledgements are sent in groups; the command sends them before it ends, in order."""
    pulsarish("produce", topic, stdin=b"1\n2\n3\n")
    command = command_line("consume", topic, "-s", "s", "-o", "raw", "--url", broker.service_url)
    with (
        Client(broker.service_url) as client,
        client.create_producer(topic) as producer,
        subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(tmp_path)) as process,
    ):
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        producer.send("4")  # which the command prints after it has acknowledged the others
        assert process.stdout.readline() == b"4\n"
        process.send_signal(number)
        assert process.wait(WAIT_S) == 0
    assert pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout in (b"", b"4\n")
