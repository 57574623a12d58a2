# SPDX-License-Identifier: Apache-2.0
"""Compatibility beside Apache Pulsar's own classes: the same verdicts, but where Java trips over itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings

from broker_core.schemas.avro.equality import same
from broker_core.schemas.avro.parsing import SchemaParseError, parse
from broker_core.schemas.avro.resolving import conflicts
from broker_core.schemas.avro.types import Union
from tests.apache_pulsar.start import UnavailableError
from tests.schemas.definitions import pairs
from tests.schemas.notation import definition
from tests.schemas.oracle import Oracle, running_oracle
from tests.schemas.vectors import TEXTS, VECTORS

pytestmark = [pytest.mark.pulsar, pytest.mark.slow]

RANDOM_PAIRS: Final = 3_000

TRIPS: Final = ("Illegal initial character", "Illegal character", "Invalid default for", "StackOverflow", "not set yet")
"""Java makes a writer's schema anew where a reader has aliases, and forgets then that names may be any and defaults are
not checked; records that contain themselves do not end there. docs/schemas.md has these differences."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    try:
        with running_oracle(tmp_path_factory.mktemp("oracle") / "java.log") as running:
            yield running
    except UnavailableError as missing:
        pytest.skip(str(missing))


def test_table_is_what_java_says(oracle: Oracle) -> None:
    """Each pair of the table, also in both directions at once."""
    for each in VECTORS:
        said = oracle.verdict(definition(each.old), definition(each.new))
        assert (said["backward"], said["forward"]) == (each.backward, each.forward), each
        assert said["full"] == (each.backward and each.forward), each


def test_definitions_are_valid_where_java_takes_them(oracle: Oracle) -> None:
    """The same definitions are checked against our parser without Java."""
    for text, is_valid in TEXTS:
        assert oracle.verdict(definition("{a:int}"), text)["valid"] == is_valid, text


def ours(old: str, new: str) -> dict[str, bool]:
    """Our verdict about a pair, with the names that the oracle has."""
    try:
        before, after = parse(old), parse(new)
    except SchemaParseError:
        return dict.fromkeys(("valid", "backward", "forward", "same"), False)
    return {
        "valid": not isinstance(before, Union) and not isinstance(after, Union),
        "backward": not conflicts(before, after),
        "forward": not conflicts(after, before),
        "same": same(before, after),
    }


def test_random_pairs_have_the_verdict_of_java(oracle: Oracle) -> None:
    agreed = 0

    @given(pairs())
    @settings(max_examples=RANDOM_PAIRS, suppress_health_check=list(HealthCheck))
    def compare(pair: tuple[Any, Any]) -> None:
        nonlocal agreed
        old, new = (json.dumps(each) for each in pair)
        said, said_by_us = oracle.verdict(old, new), ours(old, new)
        if any(trip in text for name, text in said.items() if name.endswith("_error") for trip in TRIPS):
            return
        assert said_by_us == {name: said[name] for name in said_by_us}, (old, new, said)
        agreed += 1

    compare()
    assert agreed > RANDOM_PAIRS * 2 // 3
