# SPDX-License-Identifier: Apache-2.0
"""The blocking facade: threads, callbacks, interrupts and forks."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.base.errors import AlreadyClosedError, PulsarishError, UsageError
from broker_core.base.positions import MessageId
from broker_core.client import Client, Consumer, Producer
from broker_core.client.blocking.handles import Handle
from broker_core.client.blocking.loop_thread import CALLS_AT_ONCE_MAX, Latch, LoopThread, shared_loop_thread
from broker_core.testing.running_broker import RunningBroker
from tests.client.helpers import WAIT_S, eventually, numbered, send, take, values
from tests.interrupts import interrupted_at

PROCESS_S = 60.0
"""How long a Python of its own may take to start, to work and to end on a busy machine."""

WAITING = ("loop_thread.py", "threading.py", "_base.py")
"""Where a blocking call spends its time."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("loop") / "data") as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.service_url) as opened:
        yield opened


def test_posted_calls_run_in_order_from_every_thread() -> None:
    """Calls of one thread keep their order, none is lost, and a failing one does not stop the others."""
    loop_thread = LoopThread()
    seen: list[tuple[int, int]] = []

    def work(mark: int) -> None:
        for number in range(5000):
            loop_thread.post(seen.append, (mark, number))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(3)]
    for thread in threads:
        thread.start()
    loop_thread.post(int, "no number")
    for thread in threads:
        thread.join()
    eventually(lambda: len(seen) == 15_000, "all calls were made")
    for mark in range(3):
        assert [number for each, number in seen if each == mark] == list(range(5000))
    loop_thread.stop()


def test_a_call_that_waits_runs_behind_everything_that_was_posted_before() -> None:
    """However much that is: a flush must not miss messages, nor a close come before them."""
    loop_thread = LoopThread()
    seen: list[int] = []
    go_on = threading.Event()

    async def count() -> int:
        return len(seen)

    loop_thread.post(go_on.wait, WAIT_S)
    for number in range(5 * CALLS_AT_ONCE_MAX):
        loop_thread.post(seen.append, number)
    go_on.set()
    assert loop_thread.run(count()) == 5 * CALLS_AT_ONCE_MAX
    loop_thread.stop()


def test_a_call_to_a_loop_that_has_ended_raises() -> None:
    """Also if it ended amid calls, as it may at the interpreter's end: whoever waits for one would wait for ever."""
    loop_thread = LoopThread()
    go_on = threading.Event()
    loop_thread.post(go_on.wait, WAIT_S)
    loop_thread.post(loop_thread.loop.stop)
    for number in range(20 * CALLS_AT_ONCE_MAX):
        loop_thread.post(int, number)
    go_on.set()
    loop_thread._thread.join(WAIT_S)
    with pytest.raises(RuntimeError, match="closed"):
        loop_thread.post(int, 0)


def test_blocking_calls_in_a_callback_are_refused(client: Client, topic: str) -> None:
    """A callback runs on the client's thread: what would wait for itself raises instead; send_async is fine."""
    outcomes: list[object] = []
    done = threading.Event()
    producer = client.create_producer(topic)

    def on_sent(message_id: MessageId | None, failure: PulsarishError | None) -> None:
        try:
            producer.send("never")
        except UsageError as refused:
            outcomes.append(str(refused))
        producer.send_async("from the callback", callback=lambda message_id, failure: done.set())

    producer.send_async("x", callback=on_sent)
    assert done.wait(WAIT_S)
    assert "inside a callback" in str(outcomes)
    assert values(take(client.create_reader(topic), 2)) == ["x", "from the callback"]


def fail(message_id: MessageId | None, failure: PulsarishError | None) -> None:
    raise ZeroDivisionError


def test_an_error_in_a_callback_harms_nobody(client: Client, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the other messages get their receipts."""
    producer = client.create_producer(topic)
    producer.send_async("x", callback=fail)
    assert producer.send("y")
    assert "callback failed" in caplog.text


def test_an_interrupt_ends_a_wait() -> None:
    """Ctrl-C in receive: the program ends at once and cleanly, though its client was not closed."""
    program = """
import asyncio
import signal
from broker_core.client.blocking.loop_thread import shared_loop_thread
signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of the test runner hands down that it is ignored
async def wait():
    print("waiting", flush=True)
    await asyncio.sleep(60)
try:
    shared_loop_thread().run(wait())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PROCESS_S)
    assert (out, err, process.returncode) == (b"interrupted\n", b"", 0)


def test_a_cancelled_call_is_cancelled_on_the_loop(interruptible: None) -> None:
    """What an interrupted caller waited for does not go on behind its back."""
    loop_thread = shared_loop_thread()
    begun, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    def interrupt() -> None:
        begun.wait(WAIT_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(forever())
    assert ended.wait(WAIT_S)


def test_an_interrupt_that_does_not_wake_the_waiting_thread_ends_its_wait(interruptible: None) -> None:
    """As one that comes just before it falls asleep: here another thread takes the signal from the system."""
    loop_thread = shared_loop_thread()

    def wait_on_loop() -> None:
        loop_thread.run(asyncio.sleep(600))

    def be_interrupted(wait: Callable[[], object]) -> None:
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
        wait()  # The interrupt may come before it, on a machine that is busy; it must not go further than this test.

    for wait in (wait_on_loop, Latch().wait):
        with pytest.raises(KeyboardInterrupt):
            be_interrupted(wait)


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
@pytest.mark.parametrize("at_most_s", [None, 600.0])
def test_an_interrupt_at_any_moment_of_a_call_leaves_the_loop_alive(at_most_s: float | None) -> None:
    """Consuming hung on Ctrl-C, once in a thousand times: the interrupt had left the lock of a condition taken.

    The call is interrupted at its first step, at its second and so on, until it is through without an interrupt.
    """
    loop_thread = LoopThread()

    def wait_on_loop() -> None:
        loop_thread.run(asyncio.sleep(0.001))

    def wait_for_latch() -> None:
        latch = Latch()
        loop_thread.post(latch.open)
        latch.wait(at_most_s)

    for call in (wait_on_loop, wait_for_latch):
        steps = 0
        while interrupted_at(steps, call, WAITING):
            steps += 1
            alive = threading.Event()
            loop_thread.loop.call_soon_threadsafe(alive.set)
            assert alive.wait(WAIT_S), f"after an interrupt at step {steps} of {call.__name__}"
        assert steps > 10
    loop_thread.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what was not even begun
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_what_an_interrupt_takes_from_its_maker_is_closed(client: Client, kind: str) -> None:
    """2.1.1 Ctrl-C when it was already made: nobody could close it, and it kept others from the subscription."""

    client.partitions("held")  # The client makes its connection first.
    thread, inner = shared_loop_thread(), client._inner

    def make() -> Handle[Any]:
        if kind == "consumer":
            return Consumer.of(thread, inner.subscribe("held", f"s{steps}"))
        return Producer.of(thread, inner.create_producer("held"))

    steps = 0
    while interrupted_at(steps, make, ("blocking/loop_thread.py",)):
        steps += 1
        thread.run(asyncio.sleep(0))
        eventually(lambda: not inner._network.open, f"nothing is open after an interrupt at step {steps}")
    assert steps > 10


def in_child(work: object) -> str:
    """Run ``work`` in a forked child and return what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())  # type: ignore[operator]
        except BaseException as failure:  # noqa: BLE001 - the child of a test reports everything
            said = f"{type(failure).__name__}: {failure}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_works_on_both_sides_of_a_fork(client: Client, topic: str) -> None:
    """The child connects anew, the parent's connections stay; handles of the parent say so in the child."""
    producer = client.create_producer(topic)
    producer.send("m0")

    def child() -> str:
        with client.create_producer(topic) as own:
            own.send("m1")
        try:
            producer.send("never")
        except AlreadyClosedError as refused:
            return str(refused)
        return "was not refused"

    assert "before the process forked" in in_child(child)
    producer.send("m2")
    assert values(take(client.create_reader(topic), 3)) == numbered(0, 3)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_neither_sends_nor_takes_with_what_its_parent_made(client: Client, topic: str) -> None:
    """Also where nothing waits: nobody would send it, and what is queued belongs to the parent."""
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s", initial_position="earliest")
    send(client, topic, 2)
    message = consumer.receive(WAIT_S)
    eventually(lambda: consumer.stats().queued_messages == 1, "the second message is here")
    attempts = (
        lambda: producer.send_async("lost"),
        lambda: consumer.receive(WAIT_S),
        lambda: consumer.acknowledge(message),
        lambda: consumer.negative_acknowledge(message),
    )
    for attempt in attempts:
        assert "before the process forked" in in_child(attempt)
    assert values([consumer.receive(WAIT_S)]) == ["m1"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_does_not_hold_the_parents_connections_open(broker: RunningBroker, topic: str) -> None:
    """The broker sees the parent leave, though a child that was forked in between lives on."""
    client = Client(broker.service_url)
    client.subscribe(topic, "s")
    go_on, wait = os.pipe()[::-1], None
    child = os.fork()
    if child == 0:
        os.read(go_on[1], 1)
        os._exit(0)
    client.close()
    with Client(broker.service_url) as other:
        eventually(lambda: _can_subscribe(other, topic), "the subscription is free")
    os.write(go_on[0], b"x")
    os.waitpid(child, 0)
    assert wait is None


def _can_subscribe(client: Client, topic: str) -> bool:
    try:
        client.subscribe(topic, "s").close()
    except PulsarishError:
        return False
    return True


def test_programs_end_without_closing(broker: RunningBroker, tmp_path: Path) -> None:
    """The interpreter's end is not held up by open clients, and nothing is printed."""
    program = f"""
from broker_core.client import Client, Consumer, Producer
from broker_core.client.blocking.handles import Handle
client = Client({broker.service_url!r})
producer = client.create_producer("end")
consumer = client.subscribe("end", "s")
producer.send("x")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PROCESS_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_program_that_ends_before_its_messages_are_stored_says_so(broker: RunningBroker) -> None:
    """Nobody flushes what it has sent, and without a word nobody would know."""
    program = f"""
from broker_core.client import Client
producer = Client({broker.service_url!r}).create_producer("lost", batching_max_publish_delay_s=60)
producer.send_async("a")
producer.send_async("b", callback=print)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PROCESS_S, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"client was not closed before its process ended sends=2" in done.stderr


def test_a_client_may_be_closed_at_the_very_end(broker: RunningBroker, client: Client, topic: str) -> None:
    """By what was registered before it was used: the interpreter calls the last one registered first."""
    program = f"""
import atexit
from broker_core.client import Client
client = Client({broker.service_url!r})
atexit.register(client.close)
producer = client.create_producer({topic!r}, batching_max_publish_delay_s=60)
producer.send_async("m0")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PROCESS_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert values(take(client.create_reader(topic), 1)) == ["m0"]


def test_a_client_that_could_not_be_closed_in_a_callback_is_closed_elsewhere(broker: RunningBroker, topic: str) -> None:
    """The refused call lets go of nothing: what waits is still flushed."""
    client = Client(broker.service_url)
    producer = client.create_producer(topic)
    refused: list[BaseException] = []
    called = threading.Event()

    def close(message_id: MessageId | None, failure: PulsarishError | None) -> None:
        try:
            client.close()
        except UsageError as error:
            refused.append(error)
        called.set()

    producer.send_async("m0", callback=close)
    assert called.wait(WAIT_S)
    assert len(refused) == 1
    slow = client.create_producer(topic, batching_max_publish_delay_s=60)
    slow.send_async("m1")
    client.close()
    with Client(broker.service_url) as other:
        assert values(take(other.create_reader(topic), 2)) == numbered(0, 2)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_closes_a_client_that_was_being_made_at_the_fork(broker: RunningBroker) -> None:
    """The thread that holds its lock is not in the child."""
    client = Client(broker.service_url)

    def child() -> str:
        signal.alarm(int(WAIT_S))
        client.close()
        return "closed"

    with client._lock:
        assert in_child(child) == "closed"


def test_a_message_without_a_callback_is_refused_where_nobody_would_tell_of_it(client: Client, topic: str) -> None:
    """By a producer that is closed: there is no flush any more that would."""
    producer = client.create_producer(topic)
    producer.close()
    with pytest.raises(AlreadyClosedError):
        producer.send_async("lost")
    told: list[object] = []
    producer.send_async("told", callback=lambda _, failure: told.append(type(failure)))
    eventually(lambda: told == [AlreadyClosedError], "the callback is told")


def test_a_closed_client_says_so(broker: RunningBroker, topic: str) -> None:
    """Every call, and closing twice is harmless."""
    client = Client(broker.service_url)
    send(client, topic, 1)
    client.close()
    client.close()
    with pytest.raises(AlreadyClosedError):
        client.create_producer(topic)
