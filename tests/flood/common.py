# SPDX-License-Identifier: Apache-2.0
"""What attacks have in common: how they are listed, and how they send very much and wait for what comes of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import Final

import httpx

from broker_core.base.errors import PulsarishError
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.core.hot_commands import send_frame_head
from broker_core.wire.entry import seal_entry
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata
from tests.flood.target import Target

Attack = Callable[[Target, float], None]

LONG_S: Final = 600.0
"""Longer than any attack takes."""


def listed_in(attacks: dict[str, Attack]) -> Callable[[Attack], Attack]:
    """A decorator that puts an attack into ``attacks``, under its name."""

    def attack(function: Attack) -> Attack:
        attacks[function.__name__] = function
        return function

    return attack


def connect(target: Target) -> RawClient:
    return RawClient(target.service_url, timeout_s=LONG_S)


def blast(client: RawClient, content: bytes, answers: int) -> None:
    """Send it all as fast as it is taken, and read so many answers meanwhile, or until the broker hangs up."""

    def send() -> None:
        with contextlib.suppress(OSError):
            client.socket.sendall(content)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with contextlib.suppress(PulsarishError, OSError):
        client.skip_frames(answers)
    if answers:
        sender.join(LONG_S)
    else:
        sender.join()
        ping(client)


def ping(client: RawClient) -> None:
    """Wait until everything before has been acted on."""
    with contextlib.suppress(PulsarishError, OSError):
        client.tell(BaseCommand(type=BaseCommand.PING, ping={}))
        while client.next_command().type != BaseCommand.PONG:
            pass


def entry(payload: bytes = b"x", **fields: object) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)  # type: ignore[arg-type]
    return seal_entry(metadata.SerializeToString(), payload)


def sends(count: int, body: bytes) -> bytes:
    return b"".join([send_frame_head(0, number, 1, len(body)) + body for number in range(count)])


def fill(target: Target, topic: str, count: int) -> None:
    """So many small messages; the topic keeps them for its subscription ``s``."""
    with connect(target) as client:
        must_succeed(client.subscribe(topic, "s", kind=CommandSubscribe.Shared))
        must_succeed(client.open_producer(topic))
        blast(client, sends(count, entry()), count)


def command_of(kind: int, **fields: object) -> BaseCommand:
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    part = getattr(command, next(each.name for each in BaseCommand.DESCRIPTOR.fields if each.number == kind))
    part.SetInParent()
    for name, value in fields.items():
        setattr(part, name, value)
    return command


def subscribing(topic: str, number: int, kind: int = CommandSubscribe.Shared, name: str = "s") -> BaseCommand:
    command = command_of(
        BaseCommand.SUBSCRIBE, topic=topic, subscription=name, subType=kind, consumer_id=number, request_id=number
    )
    command.subscribe.initialPosition = CommandSubscribe.Earliest
    return command


def frames_of(commands: Iterable[BaseCommand]) -> bytes:
    return b"".join(map(encode_command, commands))


def connect_http(target: Target) -> httpx.Client:
    return httpx.Client(base_url=f"{target.http_url}/admin/v2", timeout=LONG_S)
