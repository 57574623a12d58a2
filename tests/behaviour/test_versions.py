# SPDX-License-Identifier: Apache-2.0
"""Old official Java clients on our broker, for a moment each; and the rig that tries every version at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import UnavailableError
from tests.behaviour.cell import Cell, take_and_ack, values
from tests.behaviour.comparing import ONLY_ON_APACHE, SERVICES, differing, outcomes
from tests.behaviour.driver import DrivenClient
from tests.behaviour.java_client import start_java
from tests.client.conftest import Service

CASES = (
    ("held[{}-java]", "", ""),
    ("ours_failed[{}-java-1]", '<failure message="late"/>', ""),
    ("too_old[{}-java]", "<failure>CannotExpressError</failure>", "<failure>CannotExpressError</failure>"),
    ("theirs_failed[{}-java]", "", '<error message="gone"/>'),
    ("theirs_is_listed[{}-java]", "", '<skipped type="pytest.xfail"/>'),
    ("too_old_where_theirs_is_listed[{}-java]", '<failure message="0"/>', '<skipped type="pytest.xfail"/>'),
)
"""Names of tests, and what pytest reports of each on our broker and on Apache Pulsar."""


@pytest.mark.pulsar
@pytest.mark.parametrize("version", ["2.0.1-incubating", "4.0.8"])
def test_an_old_java_client_sends_receives_and_acknowledges(version: str, tmp_path: Path) -> None:
    """Each reads answers in its own way: 4.0 fails over fields that newer and older ones do without."""
    try:
        driver = start_java(tmp_path / "log", version)
    except UnavailableError as missing:
        pytest.skip(str(missing))
    with RunningBroker(tmp_path / "data") as broker:
        service = Service("pulsarish", broker.service_url, broker.http_url)
        cell = Cell("java", service, lambda url, access: DrivenClient(driver, url, access))
        topic = cell.topic()
        consumer = cell.consumer(topic)
        cell.send(topic, "abc")
        assert values(take_and_ack(consumer, 3)) == ["a", "b", "c"]
        consumer.close()
        assert cell.backlog(topic) == 0
        driver.end()


def test_only_what_apache_pulsar_alone_shows_counts_against_us(tmp_path: Path) -> None:
    """The rig compares the brokers: an old client's limits and faults are the same on both."""
    report = tmp_path / "report.xml"
    cases = [
        f'<testcase classname="tests.a" name="test_{name.format(service)}">{said}</testcase>'
        for name, *reports in CASES
        for service, said in zip(SERVICES, reports, strict=True)
    ]
    report.write_text(f"<testsuites>{''.join(cases)}</testsuites>")
    found = outcomes(report)
    assert {name.partition("::")[2]: outcome.verdict for name, outcome in found.items()} == {
        "test_held[java]": "on both",
        "test_ours_failed[java-1]": "only on Apache Pulsar",
        "test_too_old[java]": "cannot be said",
        "test_theirs_failed[java]": "only on ours",
        "test_theirs_is_listed[java]": "as listed",
        "test_too_old_where_theirs_is_listed[java]": "on neither",
    }
    assert list(differing(found, {ONLY_ON_APACHE})) == ["tests.a::test_ours_failed[java-1]"]
