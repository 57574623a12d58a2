# SPDX-License-Identifier: Apache-2.0
"""The page ``docs/metrics.md``: every metric with its type, its labels and its meaning, made from the declarations."""

from __future__ import annotations

from typing import Any, Final

from broker_core.server.admin.metrics import LABELS, METRICS, READERS_MAX

_INTRO: Final = f"""# Metrics

Made from the code by `make docs`; do not edit.

`http://HOST:PORT/metrics`, on the port of the admin REST, tells the figures below as OpenMetrics text, which Prometheus
reads as it is:

```yaml
scrape_configs:
  - job_name: pulsarish
    metrics_path: /metrics
    static_configs:
      - targets: ["127.0.0.1:8080"]
```

`pulsarish metrics` prints the same text. Eight alert rules are in
[alerts.yml](../conf/prometheus/alerts.yml), for `rule_files` of Prometheus; they take the job's name from above. A
dashboard for Grafana is in [dashboard.json](../conf/prometheus/dashboard.json).

Topics and subscriptions are told while their topic is loaded, which is from its first use after a start on. Rates are
those of the last 10 to 20 seconds. A scrape takes turns with all other work of the broker; {READERS_MAX} clients at a
time get an answer, a further one is told to come back (503).

Names that begin with `pulsar_` are those of Apache Pulsar, with its labels. What differs:

- The format: OpenMetrics, where Apache Pulsar answers in the older text format. Counters are declared as counters, as
  OpenMetrics asks for; Apache Pulsar declares all of these as gauges.
- `/metrics` answers; Apache Pulsar redirects it to `/metrics/`, which answers here too.
- `pulsar_topics_count` counts loaded topics of namespaces of users; there are no topics of the broker's own.
- `pulsar_storage_backlog_age_seconds` is as of the scrape; in Apache Pulsar as of the last check of backlog quotas.
- The metrics of features that this broker does not have are left out, and so are the metrics of single producers and
  consumers, which the statistics of a topic have.
"""

_TITLES: Final = (
    ("NamespaceFigures", "Of each namespace"),
    ("TopicFigures", "Of each topic or partition"),
    ("CompactionFigures", "Of each topic or partition that is compacted"),
    ("SubscriptionFigures", "Of each subscription"),
    ("BrokerFigures", "Of the broker"),
)


def metrics_markdown() -> str:
    """The introduction, then a table for each class of figures."""
    titles = dict(_TITLES)
    return "\n".join([_INTRO, *(_section(titles[each.__name__], each) for each in LABELS)])


def _section(title: str, figures: type[Any]) -> str:
    labels = ", ".join(f"`{each}`" for each in LABELS[figures])
    rows = [f"| `{each.name}` | {each.kind.value} | {each.meaning} |" for each in METRICS[figures]]
    return "\n".join(
        [f"## {title}", "", f"Labels: {labels}.", "", "| metric | type | meaning |", "|---|---|---|", *rows, ""]
    )
