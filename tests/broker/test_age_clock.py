# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is set wrong deletes nothing: ages follow it only as far as the machine's uptime agrees."""

from __future__ import annotations

import pytest

from broker_core.base.clock import SystemClock
from broker_core.base.policies import BacklogQuota, Policies, Retention
from broker_core.base.steps import drained
from broker_core.broker.limits.age_clock import AgeClock
from broker_core.testing.virtual_timers import VirtualTimers
from tests.broker.test_expiry import EXPIRY_MS, MINUTE_MS, NAME, QUOTA_MS, backlog, ledgers_left, wait
from tests.broker.world import EARLIEST, World, ack_through

YEARS_MS = 70 * 365 * 24 * 3600 * 1000
TOLERANCE_S = 300


def clocks() -> tuple[VirtualTimers, AgeClock]:
    virtual = VirtualTimers()
    return virtual, AgeClock(virtual, TOLERANCE_S)


def test_a_jump_ahead_ages_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Ages go on from the time before the jump at the pace of the uptime, and follow the clock once it is back."""
    virtual, ages = clocks()
    before = virtual.now_ms()
    virtual.step_wall_clock(YEARS_MS)
    virtual.advance(5000)
    assert ages.now_ms() == before + 5000
    assert ages.now_ms() == before + 5000
    virtual.step_wall_clock(-YEARS_MS)
    assert ages.now_ms() == virtual.now_ms()
    jumped, back = (record.getMessage() for record in caplog.records)
    assert jumped.startswith("the wall clock jumped ahead by=25550 days, 0:00:00 effect=time to live")
    assert "restart the broker if it is right" in jumped
    assert back == "the wall clock is back and ages follow it again within_s=300"


def test_small_corrections_are_believed(caplog: pytest.LogCaptureFixture) -> None:
    """A clock that is corrected again and again may end far from where it began."""
    virtual, ages = clocks()
    for _ in range(100):
        virtual.step_wall_clock(TOLERANCE_S * 1000)
        assert ages.now_ms() == virtual.now_ms()
    assert caplog.records == []


def test_a_jump_back_is_believed_and_so_is_the_return_from_it(caplog: pytest.LogCaptureFixture) -> None:
    """It makes everything younger, which deletes nothing."""
    virtual, ages = clocks()
    virtual.step_wall_clock(-YEARS_MS)
    assert ages.now_ms() == virtual.now_ms()
    virtual.step_wall_clock(YEARS_MS)
    assert ages.now_ms() == virtual.now_ms()
    assert caplog.records == []


def test_the_uptime_of_the_machine_goes_on() -> None:
    """The system's own clocks: an uptime never goes back, and agrees with the monotonic clock while nobody sleeps."""
    clock = SystemClock()
    first, started = clock.uptime(), clock.monotonic()
    assert 0 <= clock.uptime() - first < clock.monotonic() - started + 1


def test_a_clock_that_jumps_70_years_expires_no_message() -> None:
    """7.2: the time to live counts from the time before the jump; what grows old meanwhile expires as ever."""
    world = World(ttl_duration_default_in_seconds=600)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(world.clock.now_ms(), world.clock.now_ms() + 30 * MINUTE_MS)
    world.clock.step_wall_clock(YEARS_MS)
    wait(world, EXPIRY_MS)
    assert backlog(world) == 2
    wait(world, 2 * EXPIRY_MS)
    assert backlog(world) == 1


def test_a_clock_that_jumps_70_years_deletes_no_ledger_and_no_subscription() -> None:
    """7.1: neither acknowledged ledgers that are kept by age, nor subscriptions that were used lately."""
    world = World(subscription_expiration_time_minutes=60)
    consumer, _ = world.subscribe()
    drained(world.broker.set_topic_policies(NAME, Policies(retention_policies=Retention(10, -1))))
    ack_through(consumer, world.publish_at(*[world.clock.now_ms()] * 25)[-1])
    consumer.close()
    kept = ledgers_left(world)
    world.clock.step_wall_clock(YEARS_MS)
    wait(world, 2 * EXPIRY_MS)
    assert ledgers_left(world) == kept == 3
    assert list(world.topic().subscriptions) == ["s"]
    wait(world, 61 * MINUTE_MS)
    assert list(world.topic().subscriptions) == []


def test_a_clock_that_jumps_70_years_evicts_no_backlog() -> None:
    """7.3: the age of a backlog counts from the time before the jump, for eviction and for refusing producers."""
    world = World()
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(world.clock.now_ms())
    quota = BacklogQuota(-1, 3600, "consumer_backlog_eviction")
    drained(world.broker.set_topic_policies(NAME, Policies(backlog_quota_map={"message_age": quota})))
    world.clock.step_wall_clock(YEARS_MS)
    wait(world, 2 * QUOTA_MS)
    assert backlog(world) == 1


def test_a_broker_that_starts_accepts_the_time_it_finds() -> None:
    """A restart is how an operator says that the new time is right: what was old by it expires."""
    world = World(ttl_duration_default_in_seconds=600)
    world.topic().create_subscription("s", EARLIEST)
    world.publish_at(world.clock.now_ms())
    world.clock.step_wall_clock(YEARS_MS)
    wait(world, EXPIRY_MS)
    assert backlog(world) == 1
    world.restart()
    world.topic()
    wait(world, EXPIRY_MS)
    assert backlog(world) == 0
