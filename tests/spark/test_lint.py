# SPDX-License-Identifier: Apache-2.0
"""Jobs of Spark's Kafka format are told which options have to change before they move over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.base.errors import UsageError
from pulsarish_spark import lint

STREAM = """
settings = {"kafka.bootstrap.servers": "k:9092", "subscribe": TOPIC}
rows = (
    spark.readStream.format("kafka")
    .options(**settings)
    .option("maxOffsetPerTrigger", 100)
    .load()
)
query = rows.groupBy("key").count().writeStream.format("kafka").outputMode("update").start()
"""


def said(tmp_path: Path, program: str, name: str = "job.py") -> list[str]:
    """The findings without the folder."""
    path = tmp_path / name
    path.write_text(program, encoding="utf-8")
    return [str(finding).removeprefix(f"{tmp_path}/") for finding in lint(path)]


def test_a_streaming_job_is_read_whole(tmp_path: Path) -> None:
    """Each option to change with its line, in the words of the source itself, once."""
    found = said(tmp_path, STREAM)
    assert [line.partition(": ")[0] for line in found] == [f"job.py:{n}" for n in (2, 4, 6, 9)]
    assert '"kafka.bootstrap.servers" names a Kafka cluster' in found[0]
    assert found[1] == 'job.py:4: format("kafka") becomes format("pulsarish")'
    assert "did you mean maxOffsetsPerTrigger" in found[2]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        ('df.write.format("kafka").mode("append").option("kafka.acks", "all").save()', "a setting of the Kafka client"),
        ('df.write.save(format="kafka", mode="append", topics="t")', "belongs to the source"),
        ('spark.read.format("kafka").load(startingOffsets="latest", subscribe="t", columns="no")', "no column no"),
        ('spark.read.format("kafka").option("endingTimestamp", "soon")', "endingTimestamp"),
        ('spark.read.option("ENDINGTIMESTAMP", "soon").format("Kafka")', "endingTimestamp"),
        ('spark.read.format(source="kafka").option(key="endingTimestamp", value="soon")', "endingTimestamp"),
    ],
)
def test_what_fails_after_the_move_is_found(tmp_path: Path, write: str, words: str) -> None:
    """However the format and the options are given."""
    assert any(words in line for line in said(tmp_path, write))


@pytest.mark.parametrize(
    "program",
    [
        'spark.read.parquet("x")',
        'df.write.format("parquet").save("x")',
        'spark.read.format(chosen).option("kafka.bootstrap.servers", "k").load()',
        "print('kafka')",
    ],
)
def test_a_job_without_kafka_is_left_alone(tmp_path: Path, program: str) -> None:
    """What is computed is not guessed."""
    assert said(tmp_path, program) == []


def test_only_the_format_changes_where_everything_else_is_the_same(tmp_path: Path) -> None:
    """Kafka's names of options are ours too, and -1 and -2 mean the same; computed values are taken as they are."""
    program = """
reader = spark.readStream.format("kafka").option("subscribe", sys.argv[1])
rows = reader.option("startingOffsets", '{"t":{"0":-1,"1":-2}}').option("failOnDataLoss", False).load()
rows.write.format("kafka").mode("Append").option("topic", name).save()
query = rows.writeStream.format("kafka").option("topic", name).option("checkpointLocation", "/c").queryName("q").start()
"""
    assert said(tmp_path, program) == [
        'job.py:2: format("kafka") becomes format("pulsarish")',
        'job.py:4: format("kafka") becomes format("pulsarish")',
        'job.py:5: format("kafka") becomes format("pulsarish")',
    ]


def test_a_notebook_is_told_by_its_cells(tmp_path: Path) -> None:
    """Lines for the notebook itself are passed over."""
    cells = [
        {"cell_type": "markdown", "source": "# Orders"},
        {"cell_type": "code", "source": ["%pip install x\n", 'spark.read.format("kafka").load()']},
    ]
    found = said(tmp_path, json.dumps({"cells": cells, "nbformat": 4}), "job.ipynb")
    assert found == ['job.ipynb: cell 2, line 2: format("kafka") becomes format("pulsarish")']


def notebook(*cells: str) -> str:
    """A notebook with these code cells."""
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


def test_a_notebook_may_have_cells_in_another_language(tmp_path: Path) -> None:
    """They are passed over, and so is what is Python with a line for the notebook in the midst."""
    measured = 'if names:\n    %time rows = spark.read.format("kafka").load()\n    names?'
    others = ("%%sql\nselect 1 from x", "%sql \nselect 1 from x", "names = !ls")
    found = said(tmp_path, notebook(*others, f"%%capture\n{measured}"), "job.ipynb")
    assert found == ['job.ipynb: cell 4, line 3: format("kafka") becomes format("pulsarish")']
    with pytest.raises(UsageError, match=r"job\.ipynb: cell 2, line 1 is no Python"):
        said(tmp_path, notebook("", "select 1 from x", "%pip install x"), "job.ipynb")


def test_the_cells_of_a_notebook_share_their_names(tmp_path: Path) -> None:
    """Options and rows of one cell are used in another one."""
    cells = ('settings = {"kafka.bootstrap.servers": "k:9092"}\n', 'rows = spark.read.format("kafka")')
    use = 'rows = rows.options(**settings).option("columns", "no").load()'
    places = [line.partition(": format")[0][:25] for line in said(tmp_path, notebook(*cells, use), "job.ipynb")]
    assert places == [f"job.ipynb: cell {cell}, line 1" for cell in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [("job.py", "print 'x'", "job.py:1 is no Python of version 3"), ("job.ipynb", "[]", "is no notebook of format 4")],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, text: str, words: str) -> None:
    """With the file, and what to give instead."""
    with pytest.raises(UsageError, match=words):
        said(tmp_path, text, name)
    with pytest.raises(UsageError, match="cannot be read"):
        lint(tmp_path / "none.py")


def test_the_command_prints_the_findings_and_ends_with_1(tmp_path: Path) -> None:
    """0 where nothing is to do, 2 where a file cannot be read; others are told all the same."""
    (tmp_path / "job.py").write_text('spark.read.format("kafka").load()', encoding="utf-8")
    (tmp_path / "other.py").write_text("", encoding="utf-8")
    codes = {}
    for names in ("job.py", "other.py", "none.py", "none.py job.py"):
        paths = [str(tmp_path / name) for name in names.split()]
        command = [sys.executable, "-m", "pulsarish_spark", "lint", *paths]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        codes[names] = (done.returncode, done.stdout.count("\n"))
    assert codes == {"job.py": (1, 1), "other.py": (0, 0), "none.py": (2, 0), "none.py job.py": (2, 1)}


SHARED = """
KAFKA = {
    "kafka.bootstrap.servers": "k:9092",
    "kafka.group.id": "g",
    "maxOffsetPerTrigger": 10,
}
spark.read.format("kafka").options(**KAFKA).load()
spark.readStream.format("kafka").options(**{**KAFKA, "kafka.security.protocol": "SSL"}).load()
for name, text in KAFKA.items():
    writer = df.writeStream.format("kafka").option(name, text)
"""


def test_a_dict_of_options_is_judged_where_it_is_written(tmp_path: Path) -> None:
    """Once for each line that has to change, whatever way and however often it comes to readers and writers."""
    assert [line.split(":")[1] for line in said(tmp_path, SHARED)] == ["3", "4", "5", "7", "8", "8", "10"]


REASSIGNED = """
def rows(spark, servers):
    reader = spark.readStream.format("kafka")
    reader = reader.option("kafka.bootstrap.servers", servers)
    if servers:
        reader = reader.option("maxOffsetPerTrigger", 10)
    return reader.load()

def send(df, reader):
    reader = df.write.format("parquet")
    reader = reader.option("maxOffsetPerTrigger", "of a parquet file")
    reader.save("x")
    reader = df.write.format("kafka")
    reader.option("acks", "all").save()
"""


def test_a_reader_that_is_assigned_again_is_followed(tmp_path: Path) -> None:
    """The last assignment above counts."""
    found = [line.split(":")[1] for line in said(tmp_path, REASSIGNED)]
    assert found == ["3", "4", "6", "13", "14"]
