# SPDX-License-Identifier: Apache-2.0
"""``pulsarish produce`` and ``pulsarish consume`` against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from broker_core.client import Client
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, command_line, environment


def _objects(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_every_message_gets_an_id_in_the_order_of_the_input(pulsarish: Pulsarish, topic: str) -> None:
    """Ids are printed, one a line, and increase; -m may be repeated."""
    done = pulsarish("produce", topic, "-m", "one", "-m", "two", "-m", "three")
    ids = [tuple(map(int, line.split(b":"))) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr, len(ids)) == (0, b"", 3)
    assert ids == sorted(ids)
    shown = pulsarish("consume", topic, "--exit", "-o", "raw")
    assert shown.stdout == b"one\ntwo\nthree\n"


def test_lines_of_stdin_are_messages(pulsarish: Pulsarish, topic: str) -> None:
    """Also empty ones, one without an end of line, and one that is not UTF-8."""
    lines = b"first\n\n\xff\xfe\nlast without end"
    assert len(pulsarish("produce", topic, stdin=lines).stdout.splitlines()) == 4
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stdout == lines + b"\n"


def test_key_properties_and_event_time_arrive(pulsarish: Pulsarish, topic: str) -> None:
    """What is said once on the command line holds for every message."""
    pulsarish(
        "produce", topic, "-m", "x", "-k", "k", "-p", "a=1", "-p", "b=2=3", "--event-time", "2026-01-01T00:00:00Z"
    )
    (found,) = _objects(pulsarish("consume", topic, "--exit").stdout)
    assert (found["key"], found["value"], found["properties"]) == ("k", "x", {"a": "1", "b": "2=3"})
    assert found["eventTime"] == 1767225600000
    assert found["topic"] == f"persistent://public/default/{topic}"


@pytest.mark.parametrize("time", ["-86400000", "1969-12-31T00:00:00Z"])
def test_an_event_time_may_be_before_1970(pulsarish: Pulsarish, topic: str, time: str) -> None:
    """1.5 as a number and as a date; it was refused, or printed as a huge number."""
    assert pulsarish("produce", topic, "-m", "x", "--event-time", time).returncode == 0
    (found,) = _objects(pulsarish("consume", topic, "--exit").stdout)
    assert found["eventTime"] == -86_400_000


def test_split_key_takes_the_key_from_the_line(pulsarish: Pulsarish, topic: str) -> None:
    """Up to the first separator; a line without one is an error, and what came before it is stored."""
    done = pulsarish("produce", topic, "--split-key", ":", stdin=b"k:v:w\nnothing\n")
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1)
    assert b"has no key" in done.stderr
    (found,) = _objects(pulsarish("consume", topic, "--exit").stdout)
    assert (found["key"], found["value"]) == ("k", "v:w")


def test_json_lines_come_back_as_the_same_messages(pulsarish: Pulsarish, topic: str) -> None:
    """consume -o jsonl | produce --input jsonl loses nothing: bytes, keys of both kinds, properties, times, nulls."""
    rows = [
        {"key": "k", "orderingKey": "o", "value": "text", "properties": {"p": "1"}, "eventTime": 5},
        {"keyBase64": "//4=", "orderingKeyBase64": "/w==", "valueBase64": "AP8="},
        {"value": None, "eventTime": -5},
    ]
    pulsarish("produce", topic, "--input", "jsonl", stdin="\n".join(map(json.dumps, rows)).encode())
    first = pulsarish("consume", topic, "--exit")
    pulsarish("produce", f"{topic}-copy", "--input", "jsonl", stdin=first.stdout)
    second = pulsarish("consume", f"{topic}-copy", "--exit")
    content = [f"{name}{form}" for name in ("key", "orderingKey", "value") for form in ("", "Base64")]
    content += ["properties", "eventTime"]
    picked = [[{n: o.get(n) for n in content} for o in _objects(done.stdout)] for done in (first, second)]
    assert picked[0] == picked[1]
    assert [o["valueBase64"] or o["value"] for o in picked[0]] == ["text", "AP8=", None]
    assert [o["orderingKeyBase64"] or o["orderingKey"] for o in picked[0]] == ["o", "/w==", None]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", b"it is not JSON"),
        (b"[1]", b"it is not a JSON object"),
        (b'{"vale": "x"}', b'unknown field "vale"'),
        (b'{"value": 1}', b"value must be a text"),
        (b'{"valueBase64": "?"}', b"valueBase64 is not base64"),
        (b'{"value": "", "properties": {"a": 1}}', b"properties must be an object of texts"),
        (b'{"value": "", "properties": []}', b"properties must be an object of texts"),
        (b'{"value": "", "eventTime": 1.5}', b"eventTime must be milliseconds"),
        (b'{"value": "", "eventTime": ""}', b"eventTime must be milliseconds"),
        (b'{"value": "", "eventTime": true}', b"eventTime must be milliseconds"),
        (b'{"key": "k"}', b'it has no "value" (null: a message without one)'),
    ],
)
def test_a_bad_json_line_is_named(pulsarish: Pulsarish, topic: str, line: bytes, why: bytes) -> None:
    """The number of the line and what is wrong; what came before is stored and its id printed."""
    done = pulsarish("produce", topic, "--input", "jsonl", stdin=b'{"value": "good"}\n' + line)
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1)
    assert b"line 2 of the input is not a message" in done.stderr
    assert why in done.stderr


def test_a_subscription_goes_on_where_it_stopped(pulsarish: Pulsarish, topic: str) -> None:
    """What was printed is acknowledged, what was not comes next; without a subscription nothing is left behind."""
    pulsarish("produce", topic, stdin=b"1\n2\n3\n4\n5\n")
    assert pulsarish("consume", topic, "-s", "s", "-n", "2", "-o", "raw").stdout == b"1\n2\n"
    assert pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout == b"3\n4\n5\n"
    assert pulsarish("consume", topic, "-s", "s", "--exit", "-o", "raw").stdout == b""
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stdout == b"1\n2\n3\n4\n5\n"
    (sub,) = _objects(pulsarish("sub", "list", topic).stdout)
    assert (sub["subscription"], sub["msgBacklog"], sub["consumers"]) == ("s", 0, 0)


def test_reading_may_begin_at_an_id_or_at_the_end(pulsarish: Pulsarish, topic: str) -> None:
    """--from takes what produce printed; latest with --exit prints nothing."""
    for text in ("a", "b", "c"):
        ids = pulsarish("produce", topic, "-m", text).stdout.decode().split()
    assert pulsarish("consume", topic, "--exit", "--from", ids[0], "-o", "raw").stdout == b"c\n"
    assert pulsarish("consume", topic, "--exit", "--from", "latest", "-o", "raw").stdout == b""
    assert pulsarish("consume", topic, "--exit", "--from", "nowhere").returncode == 2


def test_all_partitions_are_read(pulsarish: Pulsarish, topic: str) -> None:
    """A partitioned topic is one stream of messages; each says which partition it is from."""
    pulsarish("topic", "create", topic, "-p", "3")
    pulsarish("produce", topic, "--split-key", ":", stdin=b"".join(b"%d:%d\n" % (i, i) for i in range(20)))
    found = _objects(pulsarish("consume", topic, "--exit").stdout)
    assert sorted(int(str(o["value"])) for o in found) == list(range(20))
    assert len({o["topic"] for o in found}) == 3


@pytest.mark.parametrize("compression", ["lz4", "zlib", "zstd", "snappy"])
def test_compressed_messages_are_the_same_messages(pulsarish: Pulsarish, topic: str, compression: str) -> None:
    """--compression changes the bytes on the wire only."""
    pulsarish("produce", topic, "--compression", compression, stdin=b"hello\n" * 100)
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stdout == b"hello\n" * 100


def test_text_output_has_id_key_and_value(pulsarish: Pulsarish, topic: str) -> None:
    """What a person sees; bytes that are no text are escaped."""
    (message_id,) = pulsarish("produce", topic, "-k", "k", stdin=b"v\xff").stdout.decode().split()
    assert pulsarish("consume", topic, "--exit", "-o", "text").stdout.decode() == f"{message_id}  k  v\\xff\n"


def test_following_prints_what_comes_later_and_ends_with_ctrl_c(
    broker: RunningBroker, tmp_path: Path, topic: str, interruptible: None
) -> None:
    """Each message is printed when it comes; Ctrl-C is the usual end, exit code 0, and acks are kept.

    Ctrl-C may strike between printing and acknowledging, so the last message may come again; no other may.
    """
    with Client(broker.service_url) as client, client.create_producer(topic) as producer:
        producer.send("before")
        command = command_line("consume", topic, "-s", "s", "-o", "raw", "--url", broker.service_url)
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"before\n"
            producer.send("after")
            assert process.stdout.readline() == b"after\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        with client.subscribe(topic, "s") as consumer:
            assert not consumer.has_message_available() or consumer.receive(60).value == b"after"


def test_a_lost_broker_is_told_and_so_is_its_return(tmp_path: Path) -> None:
    """Else waiting for a dead broker looks like waiting for messages; what comes afterwards is printed."""
    with RunningBroker(tmp_path / "data") as broker:
        with Client(broker.service_url) as client, client.create_producer("t") as producer:
            producer.send("before")
        command = command_line("consume", "t", "-o", "raw", "--url", broker.service_url)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment(tmp_path)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"before\n"
            broker.kill()
            assert process.stderr.readline().startswith(b"the connection is lost, trying again: ")
            broker.start()
            assert process.stderr.readline() == b"connected again\n"
            with Client(broker.service_url) as client, client.create_producer("t") as producer:
                producer.send("after")
            assert process.stdout.readline() == b"after\n"
            process.kill()


@pytest.mark.parametrize("subscription", [(), ("-s", "s")], ids=["reader", "subscription"])
def test_following_ends_where_a_terminated_topic_does(
    broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path, topic: str, subscription: tuple[str, ...]
) -> None:
    """7.5: with exit code 0 and a word on stderr, as nothing will ever come again."""
    pulsarish("produce", topic, "-m", "one", "-m", "two")
    pulsarish("topic", "terminate", topic, "-y")
    command = command_line("consume", topic, *subscription, "-o", "raw", "--url", broker.service_url)
    done = subprocess.run(command, capture_output=True, env=environment(tmp_path), timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")
    assert b"was terminated" in done.stderr


def test_what_is_held_back_or_with_others_is_not_waited_for_for_ever(
    broker: RunningBroker, pulsarish: Pulsarish, topic: str
) -> None:
    """6.1.2, 2.4.1: on Shared, --exit ends when nothing has come for so long, in good order, and says what is left."""
    command = ("consume", topic, "-s", "s", "-t", "shared", "--exit", "--timeout", "6", "-o", "raw")
    pulsarish("produce", topic, "-m", "now")
    pulsarish("produce", topic, "-m", "later", "--deliver-after", "3600")
    done = pulsarish(*command)
    assert (done.returncode, done.stdout) == (0, b"now\n")
    assert b"delayed, or with other consumers" in done.stderr
    with Client(broker.service_url) as client, client.subscribe(topic, "s", type="shared") as other:
        pulsarish("produce", topic, "-m", "theirs")
        assert other.receive(60).value == b"theirs"
        assert pulsarish(*command).stdout == b""


def test_whoever_reads_the_output_may_leave(broker: RunningBroker, tmp_path: Path, topic: str) -> None:
    """``consume | head`` ends quietly, without a trace."""
    with Client(broker.service_url) as client, client.create_producer(topic) as producer:
        for number in range(5000):
            producer.send_async(f"{number:0>100}")
        producer.flush()
    command = command_line("consume", topic, "-o", "raw", "--url", broker.service_url)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(100)
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_large_file_is_one_message(pulsarish: Pulsarish, topic: str, tmp_path: Path) -> None:
    """5.1.2, 5.1.5: with --chunking a file of 6 MB is sent whole, between others; its id names both ends."""
    content = b"".join(b"%07d " % number for number in range(750_000))
    (tmp_path / "large").write_bytes(content)
    refused = pulsarish("produce", topic, "-f", str(tmp_path / "large"))
    assert (refused.returncode, b"exceeds" in refused.stderr) == (2, True)
    done = pulsarish("produce", topic, "-m", "one", "-f", str(tmp_path / "large"), "--chunking")
    first, large = done.stdout.splitlines()
    assert (first.count(b";"), large.count(b";")) == (0, 1)
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stdout == b"one\n" + content + b"\n"
    assert pulsarish("consume", topic, "--exit", "-o", "raw", "--from", large.decode()).stdout == content + b"\n"


def test_messages_can_be_delayed(pulsarish: Pulsarish, broker: RunningBroker, topic: str) -> None:
    """6.1.1: --deliver-after and --deliver-at hold them back from Shared consumers."""
    with Client(broker.service_url) as client, client.subscribe(topic, "s", type="shared") as consumer:
        pulsarish("produce", topic, "-m", "much later", "--deliver-at", "2999-01-01T00:00:00Z")
        pulsarish("produce", topic, "-m", "later", "--deliver-after", "7")
        pulsarish("produce", topic, "-m", "now")
        assert [consumer.receive(60).value for _ in range(2)] == [b"now", b"later"]


def test_progress_is_told_on_demand(pulsarish: Pulsarish, topic: str) -> None:
    """Messages, bytes and rate at the end at least; never without being asked in a pipe."""
    sent = pulsarish("produce", topic, "--progress", stdin=b"12345\n" * 1000)
    assert (sent.returncode, sent.stderr.splitlines()[-1].startswith(b"1,000 messages, ")) == (0, True), sent
    taken = pulsarish("consume", topic, "--exit", "-o", "raw", "--progress")
    assert taken.stderr.splitlines()[-1].startswith(b"1,000 messages, 4.9 KiB, ")
    assert pulsarish("consume", topic, "--exit", "-o", "raw").stderr == b""
