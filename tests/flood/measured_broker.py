# SPDX-License-Identifier: Apache-2.0
"""A broker that measures the turns of its event loop: the CPU time of the loop's thread between two looks.

Takes the options of ``python -m broker_core.server``. For each line on stdin it writes one line of JSON on stdout: how
many turns there were since the line before, the longest, how many took too long, what ran in those (stacks that a
second thread saw, most frequent first), and the longest collections of cycles of each generation. The line ``work 30``
makes it waste 30 ms of CPU in a turn, ``hold 100`` keeps 100 MiB, ``fault`` and a name in ``FAULTS`` plants a fault: so
one sees that who watches it notices.

A look comes with each turn while there is something to do, and else each millisecond; so a figure may be too high by a
millisecond, never too low.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvloop

from broker_core.server import __main__ as program
from broker_core.server import conversation, process
from broker_core.server.admin.requests import AdminRequest
from broker_core.server.session import SessionState
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

LONG_MS: Final = 20.0
_BUSY_S: Final = 0.0001
_REST_S: Final = 0.001
_SAMPLE_S: Final = 0.004
_STACK_DEPTH: Final = 14


class TurnMeter:
    """Measures one loop, from ``start`` on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_s = 0.0
        self._collection_began_s = 0.0
        self._samples: list[tuple[float, str]] = []
        self._held = bytearray()
        self._clear()

    def start(self) -> None:
        """Start measuring. To be called in the loop's thread."""
        self._main = threading.get_ident()
        self._last_s = time.thread_time()
        self._look()
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._sample, daemon=True).start()
        threading.Thread(target=self._answer, daemon=True).start()

    def _clear(self) -> None:
        self._turns = 0
        self._longest_s = 0.0
        self._over: list[float] = []
        self._stacks: Counter[str] = Counter()
        self._collections_ms = [0.0, 0.0, 0.0]

    def _look(self) -> None:
        now_s = time.thread_time()
        took_s = now_s - self._last_s
        self._turns += 1
        if took_s > self._longest_s:
            self._longest_s = took_s
        if took_s > LONG_MS / 1000:
            self._over.append(round(1000 * took_s, 1))
            self._stacks.update(stack for _, stack in self._samples)
        self._samples = []
        self._last_s = time.thread_time()
        if took_s > _BUSY_S:
            self._loop.call_soon(self._look)
        else:
            self._loop.call_later(_REST_S, self._look)

    def _collected(self, phase: str, about: dict[str, int]) -> None:
        """The collector of cycles begins or ends; it does so in the middle of whatever runs."""
        if phase == "start":
            self._collection_began_s = time.thread_time()
        else:
            took_ms = 1000 * (time.thread_time() - self._collection_began_s)
            generation = about["generation"]
            self._collections_ms[generation] = max(self._collections_ms[generation], took_ms)

    def _sample(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_SAMPLE_S)
            frame = sys._current_frames().get(self._main)
            if frame is not None and len(self._samples) < 1000:
                self._samples.append((0.0, _stack_of(frame)))

    def _answer(self) -> None:
        for line in sys.stdin:
            what, _, amount = line.strip().partition(" ")
            if what == "work":
                done = threading.Event()
                self._loop.call_soon_threadsafe(_work, int(amount), self._loop, done)
                done.wait()
            elif what == "hold":
                self._held = bytearray(int(amount) * 1024 * 1024)
                self._held[::4096] = bytes(len(self._held) // 4096)  # pages count once they are written to
            elif what == "fault":
                FAULTS[amount]()
            if what:
                sys.stdout.write("done\n")
                sys.stdout.flush()
                continue
            longest_ms = round(1000 * self._longest_s, 1)
            answer = {
                "turns": self._turns,
                "longest_ms": longest_ms,
                "over": self._over[:50],
                "stacks": self._stacks.most_common(4),
                "collections_ms": [round(each, 1) for each in self._collections_ms],
            }
            self._clear()
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _forget_rights() -> None:
    conversation._check_right = lambda *_about: None


def _serve_strangers() -> None:
    for kind, rule in conversation.RULES.items():
        conversation.RULES[kind] = rule._replace(states=rule.states | {SessionState.START})
    _forget_rights()


def _fail_at_lookups() -> None:
    lookup = conversation.RULES[BaseCommand.LOOKUP]
    conversation.RULES[BaseCommand.LOOKUP] = lookup._replace(names=lambda command: {}[command])  # type: ignore[index]


def _fail_at_subscriptions() -> None:
    AdminRequest.subscription_name = property(lambda request: {}[request])  # type: ignore[assignment, method-assign]


FAULTS: Final[dict[str, Callable[[], None]]] = {
    "rights": _forget_rights,
    "strangers": _serve_strangers,
    "lookups": _fail_at_lookups,
    "subscriptions": _fail_at_subscriptions,
}
"""Faults to plant: rights that are not checked, clients that are served before CONNECT, a bug in one command, a bug in
requests that name a subscription."""


def _work(cpu_ms: int, loop: asyncio.AbstractEventLoop, done: threading.Event) -> None:
    until_s = time.thread_time() + cpu_ms / 1000
    while time.thread_time() < until_s:
        pass
    loop.call_later(0.01, done.set)  # a later turn


def _stack_of(frame: FrameType | None) -> str:
    names: list[str] = []
    while frame is not None and len(names) < _STACK_DEPTH:
        code = frame.f_code
        if "broker_core" in code.co_filename or "site-packages" in code.co_filename:
            names.append(f"{code.co_filename.rpartition('/')[2].removesuffix('.py')}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)


def _measured_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.call_soon(TurnMeter(loop).start)
    return loop


if __name__ == "__main__":
    process._loop_factory = lambda: _measured_loop
    sys.exit(program.main())
