# SPDX-License-Identifier: Apache-2.0
"""The event loop's own thread, one for each process, behind the blocking facade.

Owns the thread, calls into it, and what a fork needs: a child has no such thread, so it makes its own, and must not
write into its parent's sockets. Invariants: nothing blocks on the loop's thread (a call that would raises UsageError);
calls posted by one thread run in their order.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from broker_core.base.errors import AlreadyClosedError, UsageError
from broker_core.client.connecting.connection import disown_sockets

logger = logging.getLogger(__name__)

T = TypeVar("T")

STOP_S_MAX = 2.0
"""The time for which the end of the interpreter waits for the loop's end; the thread is a daemon in any case."""

SIGNAL_LOOK_S = 0.25
"""The period in which a waiting thread wakes for signals: one just before it falls asleep would not wake it."""

CALLS_AT_ONCE_MAX = 2000
"""Posted calls that run before the loop turns to its sockets again."""


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Latch:
    """Holds one thread up until another opens it, once.

    It is one lock and nothing else, so an interrupt leaves it whole whenever it comes. One that strikes just inside an
    Event, a Condition or a Future leaves their inner lock taken for ever, and the thread that opens them, here the
    event loop, stands still behind it.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let the waiting thread go on, now or when it comes to wait. Harmless if open."""
        with contextlib.suppress(RuntimeError):
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was opened within ``timeout_s`` (None: for ever). Ends with an interrupt, whenever that comes."""
        left_s = math.inf if timeout_s is None else timeout_s
        while left_s > SIGNAL_LOOK_S:
            if self._lock.acquire(timeout=SIGNAL_LOOK_S):
                return True
            left_s -= SIGNAL_LOOK_S
        return self._lock.acquire(timeout=max(0.0, left_s))


class LoopThread:
    """A running event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._is_awake = False
        self._finishing: set[asyncio.Task[None]] = set()
        self.is_left_behind = False
        """Whether this process is a child of the one that the thread runs in. Told at the fork: asking costs a call."""
        self._thread = threading.Thread(target=self._run, name="pulsarish-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop, behind what this thread has posted, and return its result.

        An interrupt in the calling thread cancels it.
        """
        self._check_caller_of(work)
        ended = Latch()
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self.loop.create_task(work)
            begun.append(task)
            task.add_done_callback(lambda _: ended.open())

        try:
            # Posted, as the loop takes what was posted in portions: a call beside them would begin before the last.
            self.post(begin)
            ended.wait()
        except BaseException:
            self.post(lambda: [task.cancel() for task in begun])
            raise
        if begun[0].cancelled():
            raise CancelledError
        return begun[0].result()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``work`` on the loop, perhaps before what was posted; the future tells its outcome."""
        self._check_caller_of(work)
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def post(self, call: Callable[..., object], *args: object) -> None:
        """Call ``call(*args)`` soon on the loop's thread. Its failure is logged. Cheap: the loop is woken once."""
        self.check_process()
        self._calls.append((call, args))
        if self._is_awake:
            return
        try:
            self._is_awake = True
            self.loop.call_soon_threadsafe(self._make_calls)
        except BaseException:
            self._is_awake = False  # interrupted in between: the next call wakes it
            raise

    def finish(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``work`` on the loop, behind what this thread has posted. Its outcome is not told."""

        def begin() -> None:
            task = self.loop.create_task(work())
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

        self.post(begin)

    def check_caller(self) -> None:
        """Refuse what would wait for itself, or for a thread that a fork has left behind."""
        self.check_process()
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a blocking call was made inside a callback of the client",
                hint="use send_async there, or another thread",
            )

    def check_process(self) -> None:
        """Refuse a call that a fork has left without a thread to make it; even its locks may be held for ever."""
        if self.is_left_behind:
            raise AlreadyClosedError(
                "this object was made before the process forked", hint="make it anew in the child process"
            )

    def _check_caller_of(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            self.check_caller()
        except BaseException:
            work.close()
            raise

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the loop; the thread ends soon after."""
        if not self.is_left_behind and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_S_MAX)

    def _make_calls(self) -> None:
        calls = self._calls
        for _ in range(CALLS_AT_ONCE_MAX):
            if not calls:
                # First asleep, then a last look: a call posted in between must not wait for the next one.
                self._is_awake = False
                if not calls:
                    return
                self._is_awake = True
            call, args = calls.popleft()
            try:
                call(*args)
            except Exception:  # the root of every posted call; the others must still run
                logger.exception("client posted call failed call=%r", call)
        self.loop.call_soon(self._make_calls)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        with contextlib.suppress(RuntimeError):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self._is_awake = False  # A later post must raise, as there is no thread any more.


_shared: LoopThread | None = None
_lock = threading.Lock()


def shared_loop_thread() -> LoopThread:
    """The thread of this process, started at the first call."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared


@atexit.register
def _at_exit() -> None:
    """Registered at import, so it is called behind all that an application registers, which may use a client still."""
    if _shared is not None:
        _shared.stop()


def _in_forked_child() -> None:
    global _shared, _lock
    if _shared is not None:
        _shared.is_left_behind = True
    _shared = None
    _lock = threading.Lock()
    disown_sockets()


os.register_at_fork(after_in_child=_in_forked_child)
