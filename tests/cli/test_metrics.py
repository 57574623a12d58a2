# SPDX-License-Identifier: Apache-2.0
"""``pulsarish metrics``, against a real broker."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.cli.conftest import Pulsarish


def test_metrics_are_printed_as_the_broker_serves_them(pulsarish: Pulsarish) -> None:
    """Whole OpenMetrics text on stdout, and nothing else."""
    assert pulsarish("produce", "counted", stdin=b"x\n").returncode == 0
    done = pulsarish("metrics")
    assert (done.returncode, done.stderr) == (0, b"")
    families = text_string_to_metric_families(done.stdout.decode())  # type: ignore[no-untyped-call]
    samples = {sample.name: sample for family in families for sample in family.samples}
    assert samples["pulsar_topics_count"].labels == {"cluster": "standalone", "namespace": "public/default"}


def test_a_broker_that_does_not_run_has_no_metrics(pulsarish: Pulsarish) -> None:
    """Exit code 5, as for all commands that need a broker."""
    done = pulsarish("metrics", "--data-dir", "/nonexistent/data")
    assert (done.returncode, done.stdout) == (5, b"")
    assert b"no broker runs" in done.stderr
