# SPDX-License-Identifier: Apache-2.0
"""Clients that are attacked with: how far each has come with the broker when an input is sent, and what may follow.

Owns the beginnings of connections and the reading of answers; nothing of how inputs are made.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from broker_core.wire import commands
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from tests.flood.common import command_of
from tests.fuzz.commands import Words
from tests.fuzz.mutations import ends_with_a_frame
from tests.fuzz.world import BOSS, MAKER, NAMESPACES, NOBODY, USER, World, words_of
from tests.server.credentials import PASSWORD, connect, token

_PING: Final = encode_command(commands.ping())
_TYPE_TAG: Final = 0x08
_ANSWER_S: Final = 60.0
"""A broker that says nothing for so long has forgotten a client."""

_SHORT_S: Final = 0.02
"""Life of a token that ends at once, but not before the broker has seen it."""

_INPUTS_OF_A_CONNECTION: Final = 40
_REMEMBERED: Final = 10_000
"""Connections whose inputs are remembered, for a bug of which the log tells with the address."""

_SAID_TO_STRANGERS: Final = frozenset({BaseCommand.ERROR, BaseCommand.PING, BaseCommand.PONG})


@dataclass(frozen=True)
class Kind:
    """A kind of client: ``beginning`` makes the bytes before its first input, and ``words`` are those it knows.

    ``is_stranger``: the broker may tell it nothing but errors. ``ends``: its connection ends whatever it sends.
    ``may_change``: the tenant or namespace, or "" where it may change nothing. ``awaits``: the command that must come
    before the first input.
    """

    name: str
    words: Words
    beginning: Callable[[], bytes] = bytes
    is_stranger: bool = False
    ends: bool = False
    may_change: str = ""
    awaits: int | None = None


def hello(role: str, *, lives_s: float | None = None) -> bytes:
    """CONNECT with a token of ``role``, that is good for ever or for so long from now."""
    return encode_command(connect("token", token(role, lives_s=lives_s), refresh=True))


def _opened(namespace: str, *, consumes: bool) -> bytes:
    """A producer, and perhaps consumers with permits and a watch."""
    topic = f"persistent://{namespace}/plain"
    opened = [command_of(BaseCommand.PRODUCER, topic=topic, producer_id=0, request_id=1)]
    if consumes:
        for number, kind in enumerate((CommandSubscribe.Shared, CommandSubscribe.Key_Shared)):
            command = command_of(BaseCommand.SUBSCRIBE, topic=topic, subscription=f"s{number}", subType=kind)
            command.subscribe.consumer_id = command.subscribe.request_id = number
            opened += [command, command_of(BaseCommand.FLOW, consumer_id=number, messagePermits=100)]
        watch = command_of(BaseCommand.WATCH_TOPIC_LIST, namespace=namespace, topics_pattern=".*", request_id=9)
        watch.watchTopicList.watcher_id = 0
        opened.append(watch)
    return b"".join(map(encode_command, opened))


_ALL: Final = words_of(NAMESPACES, ("",))
_NOBODYS: Final = words_of(NAMESPACES, ("", NOBODY))

STRANGER: Final = Kind("before CONNECT", _ALL, is_stranger=True)
REFUSED: Final = Kind(
    "after a refused CONNECT", _ALL, lambda: encode_command(connect("token", b"garbage")), is_stranger=True, ends=True
)
WRONG_PASSWORD: Final = Kind(
    "during the check of a wrong password",
    _ALL,
    lambda: encode_command(connect("basic", f"{USER}:wrong")),
    is_stranger=True,
    ends=True,
)
PASSWORD_CHECKED: Final = Kind(
    "during the check of a password", _NOBODYS, lambda: encode_command(connect("basic", f"{USER}:{PASSWORD}"))
)
WITHOUT_RIGHTS: Final = Kind("a role without rights", _NOBODYS, lambda: hello(NOBODY))
ASKED: Final = Kind(
    "asked for fresh credentials",
    _NOBODYS,
    lambda: hello(NOBODY, lives_s=_SHORT_S),
    awaits=BaseCommand.AUTH_CHALLENGE,
)
PRODUCES: Final = Kind(
    "a role that may produce",
    words_of(NAMESPACES, ("", MAKER)),
    lambda: hello(MAKER) + _opened("open/made", consumes=False),
    may_change="open/made",
)
OWNS: Final = Kind(
    "an administrator",
    words_of(("mine/own", "mine/own", "kept/a"), ("", BOSS)),
    lambda: hello(BOSS) + _opened("mine/own", consumes=True),
    may_change="mine",
)


@dataclass
class Inputs:
    """Inputs by the connection that they were sent on."""

    by_address: OrderedDict[str, list[bytes]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, address: str) -> list[bytes]:
        """The list for a new connection."""
        inputs: list[bytes] = []
        with self._lock:
            self.by_address[address] = inputs
            if len(self.by_address) > _REMEMBERED:
                self.by_address.popitem(last=False)
        return inputs


class WrongAnswerError(Exception):
    """The broker said what it must not say to this client, or nothing."""


class Client:
    """One client that comes again each time its connection has ended. Its address is another one each time: the broker
    makes an address wait that has failed too often."""

    def __init__(self, service_url: str, kind: Kind, inputs: Inputs, addresses: Iterator[str]) -> None:
        host, _, port = service_url.partition("://")[2].rpartition(":")
        self._broker = (host, int(port))
        self._kind = kind
        self._inputs = inputs
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self._unread = b""
        self._sent: list[bytes] = []

    def send(self, content: bytes, *, is_last: bool) -> None:
        """Send an input, and wait until the broker has acted on it, or on the one before where this one asks for a PONG
        as well. Behind the last input of a connection the broker has acted on all."""
        beginning = b"" if self._socket is not None else self._kind.beginning()
        link = self._socket or self._come()
        self._sent.append(content)
        if beginning and self._kind.awaits is not None:
            link.sendall(beginning)
            beginning = b""
            if not self._hears(link, self._kind.awaits):
                self.leave()  # a machine so busy that the token had expired when it came
                return
        goes_on = ends_with_a_frame(content) and not is_last and len(self._sent) < _INPUTS_OF_A_CONNECTION
        try:
            link.sendall(beginning + content + (_PING if goes_on else b""))
            if not goes_on:
                link.shutdown(socket.SHUT_WR)
        except OSError:
            self.leave()  # the broker was quicker
            return
        if not self._hears(link, BaseCommand.PONG if goes_on else None):
            self.leave()
        elif self._kind.ends:
            raise WrongAnswerError("the connection did not end")

    def _come(self) -> socket.socket:
        link = socket.create_connection(self._broker, _ANSWER_S, (next(self._addresses), 0))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = link.getsockname()
        self._socket, self._unread = link, b""
        self._sent = self._inputs.begin(f"{host}:{port}")
        return link

    def leave(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _hears(self, link: socket.socket, kind: int | None) -> bool:
        """Whether a command of this kind comes before the end of the connection; None waits for the end."""
        while True:
            for command in self._commands():
                if kind is not None and command[:2] == bytes((_TYPE_TAG, kind)):
                    return True
                self._look_at(command)
            try:
                chunk = link.recv(1 << 20)
            except TimeoutError:
                raise WrongAnswerError(f"nothing came for {_ANSWER_S:g} s") from None
            except OSError:
                return False
            if not chunk:
                return False
            self._unread += chunk

    def _commands(self) -> Iterator[bytes]:
        """The whole frames that came, without what is behind their commands."""
        at, content = 0, self._unread
        while len(content) - at >= 4 and len(content) - at >= 4 + (size := int.from_bytes(content[at : at + 4], "big")):
            command = content[at + 8 : at + 8 + int.from_bytes(content[at + 4 : at + 8], "big")]
            at += 4 + size
            self._unread = content[at:]
            yield command

    def _look_at(self, serialised: bytes) -> None:
        if self._kind.is_stranger:
            command = commands.parse_command(serialised)
            if command.type not in _SAID_TO_STRANGERS:
                raise WrongAnswerError(f"a stranger was told {commands.command_name(command)}")


def attack(
    kind: Kind, input_of: Callable[[int], bytes], world: World, inputs: Inputs, numbers: range, workers: int
) -> list[str]:
    """Send the inputs of ``numbers``; what went wrong."""
    told: list[str] = []

    def work(worker: int) -> None:
        client = Client(world.target.service_url, kind, inputs, _addresses(worker))
        of_worker = numbers[worker::workers]
        for number in of_worker:
            content = input_of(number)
            try:
                client.send(content, is_last=number == of_worker[-1])
            except (WrongAnswerError, ConnectionRefusedError) as error:
                told.append(f"{kind.name}, input {number}: {error}\n    {content.hex()}")
                client.leave()

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(work, range(workers)))  # an error of the rig itself ends it
    return told


def _addresses(worker: int) -> Iterator[str]:
    """Loopback addresses; only Linux has more than one."""
    if sys.platform != "linux":
        yield from repeat("127.0.0.1")
    number = worker
    while True:
        number += 17
        yield f"127.{1 + number // 62_500 % 250}.{1 + number // 250 % 250}.{1 + number % 250}"
