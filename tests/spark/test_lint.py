# SPDX-License-Identifier: Apache-2.0
"""What is said of a job of Spark's Kafka format before it moves over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.base.errors import UsageError
from pulsarish_spark import lint

STREAM = """
spark = SparkSession.builder.config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
settings = {"kafka.bootstrap.servers": "k:9092", "subscribe": TOPIC}
rows = (
    spark.readStream.format("kafka")
    .options(**settings)
    .option("maxOffsetPerTrigger", 100)
    .load()
)
orders = rows.filter(F.col("topic") == "orders")
counts = orders.groupBy("key").count()
query = counts.writeStream.format("kafka").outputMode("update").trigger(continuous="1 second").start()
"""


def said(tmp_path: Path, program: str, name: str = "job.py") -> list[str]:
    """The findings without the folder."""
    path = tmp_path / name
    path.write_text(program, encoding="utf-8")
    return [str(finding).removeprefix(f"{tmp_path}/") for finding in lint(path)]


def test_a_streaming_job_is_read_whole(tmp_path: Path) -> None:
    """Each thing to change with its line, in the words of the source itself, once."""
    found = said(tmp_path, STREAM)
    assert [line.partition(": ")[0] for line in found] == [f"job.py:{n}" for n in (2, 3, 5, 7, 10, 12, 12, 12)]
    assert found[0] == "job.py:2: change: remove the package spark-sql-kafka: there is no JAR to install"
    assert '"kafka.bootstrap.servers" names a Kafka cluster' in found[1]
    assert found[2] == 'job.py:5: change: format("kafka") becomes format("pulsarish")'
    assert "did you mean maxOffsetsPerTrigger" in found[3]
    assert '.option("topicNames", "as-given")' in found[4]
    assert any('outputMode("update") is refused' in line for line in found)
    assert any("trigger(continuous=...) does not exist" in line for line in found)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        ('df.write.format("kafka").option("topic", "t").save()', 'add .mode("append")'),
        ('df.write.format("kafka").mode("overwrite").save()', 'mode("overwrite") becomes mode("append")'),
        ('df.write.save(format="kafka", mode="ignore", topic="t")', 'mode("ignore") becomes mode("append")'),
        ('df.write.format("kafka").mode("append").option("kafka.acks", "all").save()', "a setting of the Kafka client"),
        ('spark.read.format("kafka").load(startingOffsets="latest", subscribe="t", columns="no")', "no column no"),
        ('spark.read.format("kafka").option("endingTimestamp", "soon")', "endingTimestamp"),
        ('spark.readStream.format("kafka").option("startingOffsets", \'{"t":{"0":23}}\')', "those of the Kafka topic"),
        ('spark.read.format("kafka").option("endingOffsets", \'{"t":{"0":23}}\')', "those of the Kafka topic"),
        ('spark.readStream.format("kafka").option("STARTINGOFFSETS", \'{"t":{"0":23}}\')', "those of the Kafka topic"),
        ('df.writeStream.format("kafka").outputMode("Complete").start()', 'outputMode("complete") is refused'),
        ('df.write.format("kafka").mode(saveMode="overwrite").save()', 'mode("overwrite") becomes mode("append")'),
        ('df.write.format("Kafka").save()', 'add .mode("append")'),
        ('df.write.format(source="kafka").save()', 'add .mode("append")'),
        ('spark.read.format("kafka").option(key="endingTimestamp", value="soon")', "endingTimestamp"),
    ],
)
def test_what_fails_after_the_move_is_found(tmp_path: Path, write: str, words: str) -> None:
    """However the format, the mode and the options are given."""
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
        'job.py:2: change: format("kafka") becomes format("pulsarish")',
        'job.py:4: change: format("kafka") becomes format("pulsarish")',
        'job.py:5: change: format("kafka") becomes format("pulsarish")',
    ]


@pytest.mark.parametrize(
    "condition", ["topic = 'orders'", 'value is not null and TOPIC=="orders"', "topic <> 'orders'"]
)
def test_a_short_name_in_sql_is_found(tmp_path: Path, condition: str) -> None:
    """As ``where`` takes it; a full name is right already, and another column is none of its business."""
    program = 'rows = spark.read.format("kafka").option("subscribe", "orders").load().where({!r})'
    found = said(tmp_path, program.format(condition))
    assert len(found) == 2
    assert 'the full name of "orders"' in found[1]
    for other in ("topic = 'persistent://public/default/orders'", "my.topic = 'orders'", "subtopic = 'orders'"):
        assert len(said(tmp_path, program.format(other))) == 1


READS_KAFKA = 'rows = spark.readStream.format("kafka").option("subscribe", "orders,gold").load()\n'


@pytest.mark.parametrize(
    "other",
    [
        """print("set topic = 'orders' first")""",
        """HELP = "where topic = 'orders'\"""",
        """settings.topic == 'orders'""",
        """if args.topic == 'orders': run()""",
        """assert message['topic'] == 'orders'""",
        """gold = spark.read.parquet('/gold').where("topic = 'gold'")""",
        """gold = spark.read.format('delta').load('/gold').filter(F.col('topic') == 'gold')""",
        """gold = spark.read.parquet('/gold')\ngold.filter(gold.topic == 'gold').count()""",
    ],
)
def test_what_only_looks_like_a_topic_is_left_alone(tmp_path: Path, other: str) -> None:
    """A text that is not SQL, a setting, and a column of rows that come from elsewhere."""
    assert len(said(tmp_path, READS_KAFKA + other)) == 1


@pytest.mark.parametrize(
    "use",
    [
        """rows.filter(rows.topic == 'orders')""",
        """rows.select('topic', 'value').where("topic = 'orders'")""",
        """rows.withColumn('is_order', F.when(F.col('topic') == 'orders', 1))""",
        """rows.where(F.expr("topic = 'orders'"))""",
        """rows.where(f"topic = 'orders' and partition < {limit}")""",
        """IS_ORDER = "topic = 'orders'"\nrows.where(IS_ORDER)""",
    ],
)
def test_a_short_name_on_rows_of_kafka_has_to_change(tmp_path: Path, use: str) -> None:
    """Whatever way the condition takes to them."""
    (_, found) = said(tmp_path, READS_KAFKA + use)
    assert found.startswith("job.py:2: change: ")
    assert 'the full name of "orders"' in found


@pytest.mark.parametrize(
    "use",
    [
        """def orders(df):\n    return df.where(df['topic'] == 'orders')""",
        """spark.sql("select * from view where topic = 'orders'")""",
        """is_order = F.col('topic') == 'orders'""",
        """spark.read.parquet('/gold').join(rows, 'key').where("topic = 'orders'")""",
    ],
)
def test_a_short_name_on_rows_out_of_sight_has_to_be_checked(tmp_path: Path, use: str) -> None:
    """They may be Kafka's, of which the program reads some."""
    (_, found) = said(tmp_path, READS_KAFKA + use)
    assert ": check: " in found
    assert 'the full name of "orders"' in found


def test_a_notebook_is_told_by_its_cells(tmp_path: Path) -> None:
    """Lines for the notebook itself are passed over."""
    cells = [
        {"cell_type": "markdown", "source": "# Orders"},
        {"cell_type": "code", "source": ["%pip install x\n", 'spark.read.format("kafka").load()']},
    ]
    found = said(tmp_path, json.dumps({"cells": cells, "nbformat": 4}), "job.ipynb")
    assert found == ['job.ipynb: cell 2, line 2: change: format("kafka") becomes format("pulsarish")']


def notebook(*cells: str) -> str:
    """A notebook with these code cells."""
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


def test_a_notebook_may_have_cells_in_another_language(tmp_path: Path) -> None:
    """They are passed over, and so is what is Python with a line for the notebook in the midst."""
    measured = 'if names:\n    %time rows = spark.read.format("kafka").load()\n    names?'
    others = ("%%sql\nselect 1 from x", "%sql \nselect 1 from x", "names = !ls")
    found = said(tmp_path, notebook(*others, f"%%capture\n{measured}"), "job.ipynb")
    assert found == ['job.ipynb: cell 4, line 3: change: format("kafka") becomes format("pulsarish")']
    with pytest.raises(UsageError, match=r"job\.ipynb: cell 2, line 1 is no Python"):
        said(tmp_path, notebook("", "select 1 from x", "%pip install x"), "job.ipynb")


def test_the_cells_of_a_notebook_share_their_names(tmp_path: Path) -> None:
    """Options and rows of one cell are used in another one."""
    cells = ('settings = {"kafka.bootstrap.servers": "k:9092"}\n', 'rows = spark.read.format("kafka")')
    uses = ("rows = rows.options(**settings).load()", "rows.where(\"topic = 'orders'\").show()")
    places = [line.partition(": change: ")[0] for line in said(tmp_path, notebook(*cells, *uses), "job.ipynb")]
    assert places == [f"job.ipynb: cell {cell}, line 1" for cell in (1, 2, 4)]


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


VIEWS = """
spark.sql("CREATE TEMPORARY VIEW v USING kafka OPTIONS (`kafka.bootstrap.servers` 'k:9092', subscribe 'a', colums 'x')")
spark.sql(f'''
    create temporary view w using Kafka
    options (
        'subscribe' = '{TOPIC}',
        'maxOffsetPerTrigger' = '10'
    )''')
spark.sql("select * from v where topic = 'a'")
"""


def test_views_in_sql_are_found_with_their_options(tmp_path: Path) -> None:
    """In any text, over lines and with computed parts; and in the SQL cells of a notebook."""
    found = said(tmp_path, VIEWS)
    assert [line.split(":")[1] for line in found] == ["2", "2", "2", "4", "7", "9"]
    assert "job.py:2: change: USING kafka becomes USING pulsarish" in found
    assert "did you mean columns" in "".join(found)
    cell = "%%sql\nCREATE TEMPORARY VIEW v\nUSING kafka"
    assert said(tmp_path, notebook(cell), "job.ipynb") == [
        "job.ipynb: cell 1, line 3: change: USING kafka becomes USING pulsarish"
    ]
    assert said(tmp_path, "spark.sql(\"CREATE TABLE t USING parquet OPTIONS (subscribe 'kafka')\")") == []


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
    reader = reader.mode("append")
    reader.save()
"""


def test_a_reader_that_is_assigned_again_is_followed(tmp_path: Path) -> None:
    """Within its function: a variable of the same name elsewhere is another one."""
    found = [line.split(":")[1] for line in said(tmp_path, REASSIGNED)]
    assert found == ["3", "4", "6", "13"]
