# SPDX-License-Identifier: Apache-2.0
"""Pages whose examples are jobs: each runs in the session of all tests, and prints what the page says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import pulsarish_spark
from broker_core.client import Client

PAGES: Final = Path(__file__).resolve().parents[2] / "docs"
_BLOCK: Final = re.compile(r"^```(python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of code of one kind, without those that need a package of Spark that is not installed."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [block for found, block in _BLOCK.findall(text) if found == kind and "from_avro" not in block]


def run(programs: Sequence[str], folder: Path, service_url: str) -> dict[str, Any]:
    """Run ``programs`` in one namespace: with a broker of their own, and with files in ``folder``. The namespace."""
    names: dict[str, Any] = {}
    for program in programs:
        placed = program.replace('.format("pulsarish")', f'.format("pulsarish").option("service.url", "{service_url}")')
        placed = placed.replace("LagProbe()", f'LagProbe(**{{"service.url": "{service_url}"}})')
        placed = re.sub(r'"([a-z]+\.(?:parquet|checkpoint|json))"', rf'"{folder}/\1"', placed)
        exec(compile(placed, "page", "exec"), names)
    return names


def send(service_url: str, numbers: range) -> None:
    """Messages as ``seq`` and the command make them."""
    with Client(service_url) as client, client.create_producer("orders") as producer:
        for number in numbers:
            producer.send(str(number).encode())


def test_the_first_job_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pulsarish_spark.local() as broker:
        for numbers in (range(1, 101), range(101, 151)):
            send(broker.service_url, numbers)
            run(blocks("first-job.md", "python"), tmp_path, broker.service_url)
    assert capsys.readouterr().out == "".join(blocks("first-job.md", "text"))


@pytest.mark.parametrize("page", ["watching.md", "json-avro.md", "typed.md", "foreach-batch.md"])
def test_a_page_prints_what_it_says(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    with pulsarish_spark.local() as broker:
        names = run(blocks(page, "python"), tmp_path, broker.service_url)
    assert capsys.readouterr().out.strip() == "".join(blocks(page, "text")).strip()
    if "listener" in names:
        spark.streams.removeListener(names["listener"])
