# SPDX-License-Identifier: Apache-2.0
"""Where the small examples run: on the broker that the command line names, or on one of their own, gone afterwards."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from broker_core.base.errors import PulsarishError


def on_a_broker(description: str, run: Callable[[str], int]) -> int:
    """Read the command line and call ``run`` with a service URL; the exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--service-url", help="use this broker instead of starting one: pulsar://127.0.0.1:6650")
    service_url = parser.parse_args().service_url
    try:
        return run(service_url) if service_url else _on_its_own(run)
    except PulsarishError as error:  # Says what, why and what to do: where in the code it was is of no use here.
        print(f"error: {error}", file=sys.stderr)
        return 1


def _on_its_own(run: Callable[[str], int]) -> int:
    from pulsarish_spark import local  # Only here: the client needs nothing of it.

    with local() as broker:
        return run(broker.service_url)
