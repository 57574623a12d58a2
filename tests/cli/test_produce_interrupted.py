# SPDX-License-Identifier: Apache-2.0
"""``pulsarish produce`` and Ctrl-C, and a broker that falls silent."""

from __future__ import annotations

import io
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from broker_core.base.errors import OperationTimeoutError, PulsarishError
from broker_core.base.positions import MessageId
from broker_core.cli.message_forms import Outgoing
from broker_core.cli.produce import _produce, _Sending
from broker_core.client import Client, ProducerInterceptor
from broker_core.client.blocking.loop_thread import shared_loop_thread
from broker_core.client.messages.outgoing import OutgoingMessage
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import command_line, environment
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from broker_core.client.settings.options import ProducerOptions

WAIT_S = 120
SENDING = ("produce.py", "handles.py", "loop_thread.py", "threading.py", "_base.py")
"""Where the command spends its time when it sends and waits."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_sent_before_a_signal_has_its_ids_printed(
    broker: RunningBroker, tmp_path: Path, topic: str, interruptible: None, number: signal.Signals
) -> None:
    """The input goes on for ever; Ctrl-C ends it with exit code 130, and the ids of all are there, and their number.

    It may come at the moment when the command begins to wait for the next line, and has to end that, too.
    """
    command = command_line("produce", topic, "--url", broker.service_url)
    with (
        Client(broker.service_url) as client,
        client.subscribe(topic, "s") as consumer,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path)
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\nthree\n")
        process.stdin.flush()
        stored = [consumer.receive(WAIT_S).message_id for _ in range(3)]
        process.send_signal(number)
        assert process.wait(WAIT_S) == 128 + number
        out, err = process.communicate()
    assert out.decode().split() == [str(each) for each in stored]
    assert err.decode().strip() == "confirmed as stored: 3 of 3 messages"


def test_a_receipt_that_does_not_come_is_waited_for_as_long_as_the_timeout(tmp_path: Path, topic: str) -> None:
    """--timeout holds for receipts, too: code 6, and the ids of what was confirmed are there."""
    with RunningBroker(tmp_path / "data") as broker:
        command = command_line("produce", topic, "--url", broker.service_url, "--timeout", "5")
        with (
            Client(broker.service_url) as client,
            client.subscribe(topic, "s") as consumer,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(tmp_path),
            ) as process,
        ):  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(b"one\n")
            process.stdin.flush()
            stored = consumer.receive(WAIT_S).message_id
            broker.signal(signal.SIGSTOP)
            try:
                out, err = process.communicate(b"two\n", WAIT_S)
            finally:
                process.kill()
                broker.signal(signal.SIGCONT)
    assert (process.returncode, out.decode().split()) == (6, [str(stored)])
    assert b"in 5 s" in err


@pytest.mark.filterwarnings("ignore:coroutine 'AsyncProducer.flush' was never awaited")
def test_an_interrupt_at_any_moment_leaves_the_loop_alive(broker: RunningBroker, topic: str) -> None:
    """An interrupt inside of a Future left its lock taken: the receipt could not be handed in, and nothing ever ended.

    Sending is interrupted at its first step, at its second and so on, until it is through without an interrupt.
    """
    steps = 0
    with Client(broker.service_url) as client, client.create_producer(topic) as producer:

        def send() -> None:
            with patch("sys.stdout", io.StringIO()) as printed:
                _Sending(producer, "text").send_all(iter([Outgoing(value, None, {}, 0) for value in (b"one", b"two")]))
                assert len(set(printed.getvalue().split())) == 2

        while interrupted_at(steps, send, SENDING):
            steps += 1
            alive = threading.Event()
            shared_loop_thread().loop.call_soon_threadsafe(alive.set)
            assert alive.wait(WAIT_S), f"after an interrupt at step {steps}"
    assert steps > 50


def test_nothing_is_sent_behind_a_message_of_unknown_outcome(
    tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.8.4: on a topic with deduplication it would count for the one before it when the command is run again."""
    told = Queue[PulsarishError | None]()

    class Listener(ProducerInterceptor):
        def on_send_acknowledgement(
            self, message: OutgoingMessage, message_id: MessageId | None, failure: PulsarishError | None
        ) -> None:
            told.put(failure)

    def lines() -> Iterator[Outgoing]:
        yield Outgoing(b"one", None, {}, 0)
        assert told.get(timeout=WAIT_S) is None
        broker.signal(signal.SIGSTOP)
        yield Outgoing(b"two", None, {}, 0)
        assert isinstance(told.get(timeout=WAIT_S), OperationTimeoutError)
        broker.signal(signal.SIGCONT)
        yield Outgoing(b"three", None, {}, 0)

    options: ProducerOptions = {"batching_enabled": False, "send_timeout_s": 2, "interceptors": [Listener()]}
    with RunningBroker(tmp_path / "data") as broker, Client(broker.service_url) as client:
        with pytest.raises(OperationTimeoutError):
            _produce(client, topic, options, lines(), "text")
        with client.create_producer(topic) as producer:
            producer.send("end")
        with client.create_reader(topic) as reader:
            stored = [reader.read_next(WAIT_S).value for _ in range(3)]
    assert stored == [b"one", b"two", b"end"]
    assert len(capsys.readouterr().out.split()) == 1
