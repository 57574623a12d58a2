# SPDX-License-Identifier: Apache-2.0
"""The login of one connection under a clock of the test's own: expiry, fresh credentials, refusals."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker_core.base.errors import AuthenticationError, ServerError
from broker_core.server.channels import ClientFeatures
from broker_core.server.security.authentication import Authentication
from broker_core.server.security.failed_attempts import BURST
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity
from broker_core.server.security.login import ANSWER_DELAY_S, GRACE_S, Login
from broker_core.testing.virtual_timers import VirtualTimers
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

START_MS = 1_700_000_000_000


class Tickets:
    """Credentials such as ``role@60``: good until 60 s after the start, for ever without a number."""

    def __init__(self, clock: VirtualTimers) -> None:
        self._clock = clock

    def identify(self, credentials: Credentials) -> Identity:
        role, _, end = credentials.data.decode().partition("@")
        expires_s = START_MS / 1000 + float(end) if end else None
        if expires_s is not None and expires_s * 1000 <= self._clock.now_ms():
            raise AuthenticationFailedError("over")
        if role == "bad":
            raise AuthenticationFailedError("bad")
        if role == "bug":
            raise KeyError(role)
        return Identity(role, expires_s)


@dataclass
class World:
    """A connection whose login is under test, and what it was told."""

    refresh: bool = True
    method: str = "ticket"
    timers: VirtualTimers = field(default_factory=lambda: VirtualTimers(START_MS))
    peer_address: str = "10.0.0.1:1000"
    certificate: bytes | None = None
    sent: list[BaseCommand] = field(default_factory=list)
    errors: list[ServerError | None] = field(default_factory=list)
    closed: bool = False
    pauses: int = 0
    welcomed: int = 0
    admitted_count: int = 0

    def __post_init__(self) -> None:
        provider = Tickets(self.timers)
        self.authentication = Authentication({"ticket": provider, "tls": provider}, "", self.timers)
        self.features = ClientFeatures(auth_refresh=self.refresh)
        self.login = Login(self.authentication, self.timers, self.timers, self, self)

    def send(self, command: BaseCommand) -> None:
        self.sent.append(command)

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None:
        self.pauses -= 1

    def hang_up(self, reason: str, error: ServerError | None = None) -> None:
        self.errors.append(error)
        self.close()

    def close(self) -> None:
        self.closed = True
        self.login.stop()

    def admitted(self) -> None:
        self.admitted_count += 1

    def begin(self, data: str) -> None:
        self.login.begin(self.method, data.encode(), self.welcome)

    def welcome(self) -> None:
        self.welcomed += 1

    def renew(self, data: str, method: str = "") -> None:
        self.login.renew(method or self.method, data.encode())

    def pass_s(self, seconds: float) -> None:
        self.timers.advance(round(seconds * 1000))


def test_good_credentials_are_welcome() -> None:
    """The identity is there before the welcome is sent, for what that may want to know."""
    world = World()
    world.begin("reader")
    assert (world.welcomed, world.admitted_count) == (1, 1)
    assert world.login.identity == Identity("reader")


def test_credentials_that_end_while_they_are_checked_end_the_connection() -> None:
    """A client hears nothing before its welcome, and is not brought back to life by it."""
    world = World(refresh=False)
    world.login.begin(world.method, b"reader@0.0004", lambda: world.timers.step_wall_clock(1))
    assert world.closed
    late = World()
    late.login.begin(late.method, b"reader@0.0004", late.close)
    late.pass_s(1)
    assert late.sent == []


@pytest.mark.parametrize("data", ["bad", "bug", "reader@0", "reader@-5"])
def test_bad_credentials_end_the_connection_without_a_reason(data: str) -> None:
    """An error in the check is a refusal as well."""
    world = World()
    world.begin(data)
    assert world.closed
    assert not world.welcomed
    assert not world.admitted_count
    assert isinstance(world.errors[0], AuthenticationError)
    assert str(world.errors[0]) == "Failed to authenticate"


def test_credentials_without_an_end_are_never_asked_for() -> None:
    """A year later."""
    world = World()
    world.begin("reader")
    world.pass_s(365 * 86_400)
    assert not world.closed
    assert not world.sent


def test_at_the_expiry_the_client_is_asked_and_has_the_grace() -> None:
    """Neither a moment before nor, without an answer, longer. The text is Pulsar's."""
    world = World()
    world.begin("reader@100")
    world.pass_s(99.999)
    assert not world.sent
    world.pass_s(0.001)
    (asked,) = world.sent
    assert asked.type == BaseCommand.AUTH_CHALLENGE
    assert asked.authChallenge.challenge.auth_method_name == "ticket"
    assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
    world.pass_s(GRACE_S - 0.001)
    assert not world.closed
    world.pass_s(0.001)
    assert world.closed
    assert world.errors == []


def test_a_client_that_cannot_be_asked_is_closed_at_the_expiry() -> None:
    """CVE-2023-31007: credentials that have ended keep no connection."""
    world = World(refresh=False)
    world.begin("reader@100")
    world.pass_s(99.999)
    assert not world.closed
    world.pass_s(0.001)
    assert world.closed
    assert not world.sent


def test_a_certificate_cannot_be_renewed() -> None:
    """It is the connection's own: its end is the connection's, whatever the client announced."""
    world = World(method="tls")
    world.begin("reader@100")
    world.pass_s(100)
    assert world.closed
    assert not world.sent


def test_fresh_credentials_of_the_same_role_go_on_without_an_answer() -> None:
    """Three times; each end counts anew."""
    world = World()
    world.begin("reader@100")
    for end in (200, 300, 400):
        world.pass_s(100 + GRACE_S / 2 if end == 200 else 100)
        world.renew(f"reader@{end}")
        assert not world.closed
    assert [each.type for each in world.sent] == [BaseCommand.AUTH_CHALLENGE] * 3
    world.pass_s(100 + GRACE_S)
    assert world.closed


def test_fresh_credentials_of_another_role_close_the_connection() -> None:
    """What it has open stands on the old one."""
    world = World()
    world.begin("reader@100")
    world.pass_s(100)
    world.renew("admin@200")
    assert world.closed
    assert world.errors == []
    assert world.login.identity == Identity("reader", START_MS / 1000 + 100)


@pytest.mark.parametrize("data", ["bad@200", "reader@100", "bug"])
def test_bad_fresh_credentials_are_refused(data: str) -> None:
    """The old ones again are bad."""
    world = World()
    world.begin("reader@100")
    world.pass_s(100)
    world.renew(data)
    assert world.closed
    assert isinstance(world.errors[0], AuthenticationError)


def test_fresh_credentials_keep_their_method() -> None:
    """A role may mean something else in another."""
    world = World()
    world.begin("reader@100")
    world.pass_s(100)
    world.renew("reader@200", method="tls")
    assert world.closed


def test_unasked_credentials_count_but_not_every_moment() -> None:
    """One a second is checked; each check costs the broker something."""
    world = World()
    world.begin("reader@100")
    world.renew("reader@200")
    world.pass_s(1)
    world.renew("reader@300")
    world.pass_s(199)
    assert not world.sent
    world.renew("reader@400")
    world.pass_s(0.999)
    assert not world.closed
    world.renew("reader@400")
    assert world.closed


def test_a_clock_that_is_set_moves_the_end() -> None:
    """Back: the credentials last longer. Ahead: it is noticed within half a minute."""
    world = World()
    world.begin("reader@100")
    world.timers.step_wall_clock(-50_000)
    world.pass_s(149)
    assert not world.sent
    world.pass_s(1)
    assert world.sent
    later = World()
    later.begin("reader@86400")
    later.timers.step_wall_clock(86_400_000)
    later.pass_s(30)
    assert later.sent


def test_a_closed_connection_has_no_timer_left() -> None:
    """Nothing is asked of a client that has gone."""
    world = World()
    world.begin("reader@100")
    world.close()
    world.pass_s(1000)
    assert not world.sent


def test_an_address_that_fails_too_often_waits_for_its_answer() -> None:
    """Others do not; after a while of peace neither does this one."""
    shared = World().authentication
    for attempt in range(BURST + 1):
        world = World()
        world.login = Login(shared, world.timers, world.timers, world, world)
        world.begin("bad")
        assert world.closed == (attempt < BURST - 1)
    assert world.pauses == 1
    assert world.login.is_checking
    world.pass_s(ANSWER_DELAY_S)
    assert world.closed
    other = World(peer_address="10.0.0.2:1000")
    other.login = Login(shared, other.timers, other.timers, other, other)
    other.begin("bad")
    assert other.closed


def test_good_credentials_come_in_whatever_their_address_did() -> None:
    """Many clients share the address of a gateway, and all of a machine that of loopback."""
    world = World()
    for _ in range(2 * BURST):
        world.authentication.failed_attempts.add("10.0.0.1")
    world.begin("reader")
    assert world.welcomed


def test_an_open_broker_looks_at_no_credentials() -> None:
    """As before there was authentication; what a client sends unasked is dropped."""
    world = World()
    world.login = Login(Authentication({}, "", world.timers), world.timers, world.timers, world, world)
    world.begin("bad")
    assert world.welcomed
    assert world.login.identity is None
    for _ in range(3):
        world.renew("bad")
    assert not world.closed
