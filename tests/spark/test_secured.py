# SPDX-License-Identifier: Apache-2.0
"""Spark on a real Apache Pulsar with TLS, authentication and authorization; and that its tokens show nowhere."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.apache_pulsar.secured import CHECK_S, Secured, renewed, token
from tests.spark.conftest import failure, values

pytestmark = [pytest.mark.spark, pytest.mark.pulsar]

TERMINATION_S = 120


@pytest.fixture
def role(secured: Secured) -> str:
    """A role of this test alone, which may do everything with messages."""
    name = f"role-{uuid.uuid4().hex[:8]}"
    secured.grant(name, "produce", "consume")
    return name


def _options(secured: Secured, **given: str) -> dict[str, str]:
    return {"service.url": secured.service_url, "tlsTrustCertsFilePath": secured.ca, **given}


def _write(spark: SparkSession, options: dict[str, str], topic: str, count: int = 10) -> None:
    rows = spark.range(count).selectExpr("cast(id as string) value")
    rows.write.format("pulsarish").options(**options).mode("append").save(topic)


def test_batches_are_written_and_read_with_a_token_that_shows_nowhere(
    spark: SparkSession, secured: Secured, role: str, topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """By the names of pulsar-spark, with the token in authParams; it is in no plan."""
    secret = token(role)
    options = {
        "service.url": secured.service_url,
        "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "pulsar.client.authParams": f"token:{secret}",
        "pulsar.client.tlsTrustCertsFilePath": secured.ca,
    }
    _write(spark, options, topic)
    frame = spark.read.format("pulsarish").options(**options).load(topic)
    assert values(frame) == list(range(10))
    frame.explain("extended")
    frame.explain("formatted")
    said = capfd.readouterr()
    assert secret not in said.out + said.err
    assert secret not in frame._jdf.queryExecution().toString()


def test_a_client_certificate_serves_spark_too(spark: SparkSession, secured: Secured, topic: str) -> None:
    """Mutual TLS, by the two files alone; the tasks read them."""
    secured.grant("certified", "produce", "consume")
    certificate, key = secured.certificate("certified")
    options = _options(secured, tlsCertificateFilePath=certificate, tlsKeyFilePath=key)
    _write(spark, options, topic)
    assert values(spark.read.format("pulsarish").options(**options).load(topic)) == list(range(10))


def test_a_stream_outlives_its_first_token(
    spark: SparkSession, secured: Secured, role: str, topic: str, tmp_path: Path
) -> None:
    """Source and sink read the renewed token file; each row arrives, and the checkpoint does not hold the token."""
    file, lives_s = tmp_path / "token", 8 * CHECK_S
    with renewed(file, role, lives_s=lives_s) as tokens:
        checkpoint = _copied_for_long(spark, secured, topic, tmp_path, seconds=2.5 * lives_s)
    kept = "".join(each.read_text(errors="replace") for each in checkpoint.rglob("*") if each.is_file())
    assert len(tokens) > 2
    assert [each for each in tokens if each in kept] == []


def _copied_for_long(spark: SparkSession, secured: Secured, topic: str, tmp_path: Path, *, seconds: float) -> Path:
    """Copy a topic by a stream while rows come, and see each arrive; the checkpoint."""
    options = _options(secured, tokenFile=str(tmp_path / "token"))
    _write(spark, options, topic, 1)
    stream = spark.readStream.format("pulsarish").options(**options, startingOffsets="earliest").load(topic)
    writing = stream.select("value").writeStream.format("pulsarish").options(**options)
    checkpoint = tmp_path / "checkpoint"
    query = writing.option("checkpointLocation", str(checkpoint)).start(f"{topic}-out")
    try:
        ends = time.monotonic() + seconds
        sent = 1
        while time.monotonic() < ends:
            _write(spark, options, topic, 1)
            sent += 1
        query.processAllAvailable()
    finally:
        query.stop()
    out = spark.read.format("pulsarish").options(**options).load(f"{topic}-out")
    assert len(values(out)) == sent
    return checkpoint


def test_refusals_are_one_clear_line(spark: SparkSession, secured: Secured, topic: str) -> None:
    """An expired token, a right that is missing, a CA that does not fit, a file that is not there."""
    reader = f"reader-{uuid.uuid4().hex[:8]}"
    secured.grant(reader, "consume")
    expired = token(reader, lives_s=-60)
    said = failure(lambda: _write(spark, _options(secured, token=expired), topic))
    assert "it expired at" in said
    assert expired not in said
    said = failure(lambda: _write(spark, _options(secured, token=token(reader)), topic))
    assert "is not allowed to attach producer of" in said
    wrong = _options(secured, token=token(reader)) | {"tlsTrustCertsFilePath": secured.other_ca}
    assert "is not trusted" in failure(lambda: _write(spark, wrong, topic))
    missing = _options(secured, tokenFile="/nowhere/token")
    read = spark.read.format("pulsarish").options(**missing).load(topic)
    assert "the token cannot be read from file /nowhere/token" in failure(read.collect)
