# SPDX-License-Identifier: Apache-2.0
"""Any Pulsar cluster with TLS and a token: rows go there from Spark and come back. Nothing is started but Spark.

    python examples/secure_cluster.py pulsar+ssl://host:6651 --ca ca.pem --token-file token --topic demo

The token stays in its file, which each task reads: it is in no plan, and when it is renewed there, what runs goes on.
The role of the token needs the rights to produce and to consume.
"""

from __future__ import annotations

import argparse
import sys
import uuid

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsarish_spark

ROWS = 1000


def run(topic: str, options: dict[str, str]) -> int:
    """Write rows with a mark of this run, read the topic, count those of the mark; 0 if all came back."""
    pulsarish_spark.use_this_python()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    mark = uuid.uuid4().hex
    rows = spark.range(ROWS).selectExpr(f"'{mark}' key", "cast(id as string) value")
    try:
        rows.write.format("pulsarish").options(**options).mode("append").save(topic)
        found = spark.read.format("pulsarish").options(**options).load(topic)
        came = found.where(f"cast(key as string) = '{mark}'").select("value").distinct().count()
    except PySparkException as error:  # Its first line says what, why and what to do.
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(f"{came} of {ROWS} rows came back")
    return 0 if came == ROWS else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Spark on a Pulsar cluster with TLS and a token.")
    parser.add_argument("service_url", help="pulsar+ssl://host:6651")
    parser.add_argument("--ca", required=True, help="PEM file of the CA of the cluster's certificates")
    parser.add_argument("--token-file", required=True, help="file with the token")
    parser.add_argument("--topic", required=True, help="a topic that the token's role may write and read")
    given = parser.parse_args()
    options = {
        "service.url": given.service_url,
        "tlsTrustCertsFilePath": given.ca,
        "tokenFile": given.token_file,
    }
    return run(given.topic, options)


if __name__ == "__main__":
    sys.exit(main())
