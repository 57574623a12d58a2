# SPDX-License-Identifier: Apache-2.0
"""Batch writes of Spark with tasks that fail and are killed: all rows once, or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.client import Client
from tests.client.conftest import TRANSACTIONAL, Service, transactional
from tests.spark.standalone import outcome
from tests.spark.troubled_job import ROWS

pytestmark = pytest.mark.spark

LOCAL = "local[2,3]"
"""Two tasks at a time, and a task is tried three times."""


@pytest.fixture(scope="module", params=TRANSACTIONAL)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The brokers that have transactions."""
    with transactional(request.param, request, tmp_path_factory) as made:
        yield made


def saved(service: Service, topic: str) -> list[int]:
    """Every row of a topic, sorted; no transaction is open there for long."""
    with Client(service.service_url) as client:
        with client.create_producer(topic) as producer:
            last = producer.send("-1")
        with client.create_reader(topic) as reader:
            messages = [reader.read_next(60)]
            while messages[-1].message_id != last:
                messages.append(reader.read_next(60))
    return sorted(number for number in (int(each.value or b"") for each in messages) if number >= 0)


def run(saves: dict[str, dict[str, str]]) -> Any:
    """How each save of a driver of its own has ended."""
    program = str(Path(__file__).with_name("troubled_job.py"))
    job = subprocess.Popen(
        [sys.executable, program, LOCAL, json.dumps(saves)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    return outcome(job)


def test_rows_of_failed_attempts_are_never_there(service: Service) -> None:
    """A task fails, or its Python worker is killed, and is tried again; or fails always: then nothing is there.

    None leaves a transaction that holds up readers. By default, and beside it what at-least-once leaves.
    """
    mark = uuid.uuid4().hex[:8]
    once, dies, fails, weak = (f"{mark}-once", f"{mark}-dies", f"{mark}-fails", f"{mark}-weak-late")
    given = {"service.url": service.service_url}
    ended = run({once: given, dies: given, fails: given, weak: given | {"deliveryGuarantee": "at-least-once"}})
    assert [ended[each] for each in (once, dies, weak)] == ["saved"] * 3
    assert "this task fails always" in ended[fails]
    assert saved(service, once) == [*range(ROWS)]
    assert saved(service, dies) == [*range(ROWS)]
    assert saved(service, fails) == []
    twice = saved(service, weak)
    assert set(twice) == {*range(ROWS)}
    assert len(twice) > ROWS
