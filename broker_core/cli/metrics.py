# SPDX-License-Identifier: Apache-2.0
"""``pulsarish metrics``: the figures of a broker, as Prometheus would read them."""

from __future__ import annotations

import click

from broker_core.base.printable import printable
from broker_core.cli.target import Target, target_options


@click.command()
@target_options
def metrics(target: Target) -> None:
    """Print the metrics of a broker: the text that it serves to Prometheus at /metrics. docs/metrics.md lists them."""
    with target.admin() as admin:
        click.echo(printable(admin.metrics(), keep="\n"), nl=False)
