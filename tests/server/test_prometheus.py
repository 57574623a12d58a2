# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a broker, and takes the alert rules and the queries of the dashboard of conf/prometheus.

Debian's package ``prometheus`` has both programs; without them these tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from broker_core.server.admin.metrics import METRICS
from broker_core.testing.running_broker import HeldPort, RunningBroker
from tests.client.helpers import eventually
from tests.server.test_admin import publish

CONF: Final = Path(__file__).resolve().parents[2] / "conf" / "prometheus"

ALERTS: Final = 8

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus is not installed: apt-get install prometheus",
)


def dashboard_queries() -> list[str]:
    """The queries of all panels, with an interval in the place of Grafana's variable."""
    panels = json.loads((CONF / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    return [each["expr"].replace("$__rate_interval", "1m") for panel in panels for each in panel["targets"]]


def asked(url: str, path: str, **parameters: str) -> Any:
    """What Prometheus answers; None while it is starting."""
    try:
        answer = httpx.get(f"{url}/api/v1/{path}", params=parameters, timeout=60)
    except httpx.TransportError:
        return None
    return answer.json()["data"] if answer.status_code == 200 else None


@pytest.fixture
def prometheus(broker: RunningBroker, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the broker each second."""
    target = broker.http_url.removeprefix("http://")
    jobs = [{"job_name": "pulsarish", "metrics_path": "/metrics", "static_configs": [{"targets": [target]}]}]
    rules = [str(CONF / "alerts.yml")]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": rules,
        "scrape_configs": jobs,
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    port = HeldPort()
    address = f"127.0.0.1:{port.number}"
    port.release()
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--web.listen-address={address}"]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen([*command, f"--storage.tsdb.path={tmp_path / 'data'}"], stdout=log, stderr=log)
        try:
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(60)


def test_alerts_and_dashboard_ask_for_metrics_that_exist() -> None:
    """A metric that is renamed would leave an alert silent."""
    known = {metric.name for metrics in METRICS.values() for metric in metrics}
    text = "\n".join([*dashboard_queries(), (CONF / "alerts.yml").read_text(encoding="utf-8")])
    words = set(re.findall(r"\bpulsar(?:ish)?_\w+", text))
    named = {each if each in known else re.sub(r"_(bucket|sum|count)$", "", each) for each in words}
    assert named
    assert named <= known


@needs_prometheus
def test_each_trouble_raises_its_alert() -> None:
    """Prometheus itself evaluates the rules on histories, of a broker that is well and of one that is not."""
    for arguments in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(["promtool", *arguments], cwd=CONF, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
@pytest.mark.slow
def test_a_real_prometheus_reads_the_metrics(broker: RunningBroker, topic: str, prometheus: str) -> None:
    """Samples arrive with their labels, all rules are evaluated, and no query of the dashboard is refused."""
    publish(broker, topic, 3)
    count = f'pulsar_in_messages_total{{topic="{topic}",namespace="public/default"}}'

    def came() -> bool:
        found = asked(prometheus, "query", query=count)
        return bool(found and found["result"] and found["result"][0]["value"][1] == "3")

    eventually(came, "a scrape")
    assert asked(prometheus, "query", query='up{job="pulsarish"}')["result"][0]["value"][1] == "1"

    def evaluated() -> bool:
        rules = asked(prometheus, "rules")["groups"][0]["rules"]
        return [each["health"] for each in rules] == ["ok"] * ALERTS

    eventually(evaluated, "an evaluation of all rules")
    for query in dashboard_queries():
        assert asked(prometheus, "query", query=query) is not None, query
