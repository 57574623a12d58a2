# SPDX-License-Identifier: Apache-2.0
"""A slice of ``make fuzz``, and that each of its checks can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from scripts.openapi import openapi
from tests.flood.common import command_of, subscribing
from tests.flood.measured_broker import FAULTS
from tests.flood.rig import turn_ms_max
from tests.fuzz import clients
from tests.fuzz.clients import Kind
from tests.fuzz.mutations import ends_with_a_frame
from tests.fuzz.rig import Run, command_input, frame_input, frames_run, fresh_world, play, runs
from tests.fuzz.schemathesis_rig import named
from tests.fuzz.world import BOSS, NOBODY, World

_SLACK = 5
"""How much longer a turn may take here: caches are cold, and the machine has other things to do."""

_CHUNK = 75


@pytest.fixture
def world() -> Iterator[World]:
    """A broker of its own for each test."""
    with fresh_world() as made:
        yield made


@pytest.mark.parametrize("run", runs(1, 1_000, 1_200, 2_500), ids=lambda run: f"{run.sends}, {run.client}")
def test_inputs_of_any_client_are_handled(world: World, run: Run) -> None:
    """No bug in the log, no change without a right, short turns, bounded memory, and others are served."""
    assert play(world, run, turn_max_ms=_SLACK * turn_ms_max(), chunk=_CHUNK).failures == []


def _subscribing(_number: int) -> bytes:
    return encode_command(subscribing("persistent://kept/a/plain", 7, name="new"))


def _looking_up(_number: int) -> bytes:
    return encode_command(command_of(BaseCommand.LOOKUP, topic="persistent://kept/a/plain", request_id=0))


@pytest.mark.parametrize(
    ("fault", "kind", "input_of", "told"),
    [
        ("rights", clients.WITHOUT_RIGHTS, _subscribing, "kept/a"),
        ("lookups", clients.WITHOUT_RIGHTS, _looking_up, "ended by a bug"),
        ("strangers", clients.STRANGER, _looking_up, "a stranger was told LOOKUP_RESPONSE"),
    ],
)
def test_the_rig_notices_a_fault(
    world: World, fault: str, kind: Kind, input_of: Callable[[int], bytes], told: str
) -> None:
    """A change without a right, a bug in a handler, and an answer to a stranger; each with the input in hex."""
    world.target.harm(f"fault {fault}")
    found = play(world, frames_run(kind, "commands", input_of, 3), turn_max_ms=1e9)
    assert len(found.failures) >= 1
    assert told in found.failures[0]
    if fault != "rights":  # a fresh broker has no fault that was planted later
        assert input_of(0).hex() in found.failures[0]
    assert fault in FAULTS


def test_the_rig_notices_a_request_that_fails(world: World) -> None:
    """A bug in one kind of request is an answer with 500, and a line of the log."""
    world.target.harm("fault subscriptions")
    (run,) = [run for run in runs(1, 0, 0, 2_000) if run.client == f"role {NOBODY}"]
    failures = play(world, run, turn_max_ms=1e9).failures
    assert any(", request " in each and ": 500 b" in each for each in failures)
    assert any("Traceback" in each for each in failures)


def test_schemathesis_is_told_what_exists() -> None:
    """Half the names in the paths of its requests lead to something."""
    parameters = named(openapi())["components"]["parameters"]
    assert "kept" in parameters["tenant"]["schema"]["anyOf"][0]["enum"]
    assert "anyOf" not in parameters["key"]["schema"]


def test_the_input_that_changed_the_state_is_found(world: World) -> None:
    """An administrator who may change nothing, by his eleventh input, is named with that input, on a fresh broker."""
    harmless = encode_command(BaseCommand(type=BaseCommand.PING, ping={}))
    making = encode_command(subscribing("mine/own/plain", 7, name="new"))
    kind = replace(clients.OWNS, beginning=lambda: clients.hello(BOSS), may_change="")
    run = frames_run(kind, "commands", lambda number: making if number >= 10 else harmless, 20)
    (failure,) = play(world, run, turn_max_ms=1e9).failures
    assert f"input 10: {making.hex()}" in failure
    assert "persistent/mine/own/plain/internalStats: cursors: new: None is now" in failure


def test_an_input_follows_from_the_seed() -> None:
    """The same number makes the same bytes again, another seed others."""
    for input_of in (command_input, frame_input):
        first = [input_of(1, clients.OWNS, number) for number in range(50)]
        assert first == [input_of(1, clients.OWNS, number) for number in range(50)]
        assert first != [input_of(2, clients.OWNS, number) for number in range(50)]


def test_every_other_command_is_whole() -> None:
    """The odd numbers are commands without mutations, of all kinds in turn."""
    made = [command_input(1, clients.STRANGER, number) for number in range(1, 101, 2)]
    assert all(map(ends_with_a_frame, made))
    assert len({frame[9] for frame in made}) >= 20
