# SPDX-License-Identifier: Apache-2.0
"""Every command with bad input, and with standard streams that are not there: a clear text, a documented code."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from broker_core.cli.main import cli
from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Done, Pulsarish, command_line, environment

NOT_UTF8 = b"\xff".decode("utf-8", "surrogateescape")
"""As Python hands over an argument that is no text."""

OF_ONE_TOPIC = [
    ("consume", "--exit"),
    *[("topic", verb) for verb in ("stats", "delayed", "examine", "policies", "unload")],
    *[("topic", verb, "--yes") for verb in ("delete", "terminate")],
    ("topic", "update-partitions", "--partitions", "3"),
    ("sub", "list"),
]
OF_A_SUBSCRIPTION = [
    *[("sub", verb) for verb in ("create", "stats", "peek")],
    *[("sub", verb, "--yes") for verb in ("delete", "clear")],
    ("sub", "skip", "--yes", "--count", "1"),
    ("sub", "expire", "--yes", "--older-than", "1"),
    ("sub", "reset", "--yes", "--to", "earliest"),
]


def leaves(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, by its words."""
    yield path
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from leaves(child, (*path, name))


def in_shell(tmp_path: Path, broker: RunningBroker, script: str) -> Done:
    """Run ``script``, where ``P`` is the command."""
    urls = {"PULSARISH_SERVICE_URL": broker.service_url, "PULSARISH_HTTP_URL": broker.http_url}
    program = f'P() {{ {shlex.join(command_line())} "$@"; }}\nset -o pipefail\n{script}'
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, env=environment(tmp_path, **urls), timeout=300, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("path", list(leaves()), ids=" ".join)
def test_every_command_has_help(lonely: Pulsarish, path: tuple[str, ...]) -> None:
    """On stdout, code 0, by both names."""
    for option in ("-h", "--help"):
        done = lonely(*path, option)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().startswith(f"Usage: {' '.join(['pulsarish', *path])} ")


@pytest.mark.parametrize("command", OF_ONE_TOPIC, ids=" ".join)
def test_a_topic_that_is_not_there(pulsarish: Pulsarish, command: tuple[str, ...]) -> None:
    """Code 3, and how to make it, under a name that leads there."""
    done = pulsarish(*command, "nobody-made-it")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"does not exist" in done.stderr
    assert b"pulsarish topic create nobody-made-it" in done.stderr
    assert pulsarish(*command, "no/such/topic").returncode == 3
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", [*OF_ONE_TOPIC, ("produce", "-m", "x"), ("topic", "create")], ids=" ".join)
@pytest.mark.parametrize("name", ["", "a/b", "ftp://a/b/c", "a\nb", NOT_UTF8, "x" * 3000], ids=ascii)
def test_a_name_that_is_none(pulsarish: Pulsarish, command: tuple[str, ...], name: str) -> None:
    """Code 2, and what is wrong with it."""
    done = pulsarish(*command, name)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is not valid" in done.stderr


@pytest.mark.parametrize("command", OF_A_SUBSCRIPTION, ids=" ".join)
def test_a_subscription_that_is_none(pulsarish: Pulsarish, topic: str, command: tuple[str, ...]) -> None:
    """Code 2 for what is no name, else 3."""
    pulsarish("topic", "create", topic)
    for name in ("", "a\nb", NOT_UTF8):
        done = pulsarish(*command, topic, name)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"is not valid" in done.stderr
    assert pulsarish(*command, "nobody-made-it", "s").returncode == 3
    if "create" not in command:
        assert pulsarish(*command, topic, "s").returncode == 3


def test_what_to_do_about_a_topic_is_said_with_a_name_that_leads_there(pulsarish: Pulsarish, topic: str) -> None:
    """Of another namespace the whole name; of a partition that there is none the topic that says how many there are."""
    assert b"topic create persistent://a/b/c\n" in pulsarish("topic", "stats", "a/b/c").stderr
    pulsarish("topic", "create", topic, "-p", "2")
    done = pulsarish("topic", "stats", f"{topic}-partition-7")
    assert (done.returncode, f"see: pulsarish topic stats {topic}\n" in done.stderr.decode()) == (3, True)


def test_bytes_on_the_command_line_stay_what_they_are(pulsarish: Pulsarish, topic: str) -> None:
    """A message or key that is no text is sent as bytes, as from stdin."""
    assert pulsarish("produce", topic, "-m", NOT_UTF8, "-k", NOT_UTF8).returncode == 0
    (shown,) = map(json.loads, pulsarish("consume", topic, "--exit").stdout.splitlines())
    assert (shown["valueBase64"], shown["keyBase64"]) == ("/w==", "/w==")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", f"a={NOT_UTF8}"], "properties"),
        (["--name", NOT_UTF8], "name"),
        (["--name", ""], "--name is empty"),
        (["--split-key", ""], "--split-key is empty"),
        (["--deliver-after", "nan"], "nan is not a number"),
        (["--deliver-after", "inf"], "inf is not in the range"),
        (["--deliver-after", "1", "--deliver-at", "5"], "--deliver-at and --deliver-after both say the time"),
        (["-k", "a", "--split-key", ":"], "-k and --split-key both say the key"),
        (["--batch-by-key", "--chunking"], "--batch-by-key has no effect with --chunking"),
        (["--batch-by-key", "--initial-sequence-id", "1"], "no effect with --initial-sequence-id"),
        (["-p", "a=1", "-p", "a=2"], '--property "a" is given twice'),
    ],
)
def test_what_cannot_be_sent_is_refused(pulsarish: Pulsarish, topic: str, arguments: list[str], words: str) -> None:
    """Code 2, and which of it, in the words of the command line."""
    done = pulsarish("produce", topic, "-m", "x", *arguments)
    assert (done.returncode, done.stdout, words in done.stderr.decode()) == (2, b"", True)


@pytest.mark.parametrize("option", ["-k", "--ordering-key", "--event-time"])
def test_lines_that_say_it_all_are_told_nothing(pulsarish: Pulsarish, topic: str, option: str) -> None:
    """An empty text is given too: what would have no effect is refused."""
    done = pulsarish("produce", topic, "--input", "jsonl", option, "", stdin=b'{"value": "a"}')
    assert (done.returncode, done.stdout) == (2, b"")


def test_what_is_too_large_is_told_of_chunks(pulsarish: Pulsarish, tmp_path: Path, topic: str) -> None:
    """By the name of the option, not only by that of the client's argument."""
    (tmp_path / "large").write_bytes(bytes(6 << 20))
    done = pulsarish("produce", topic, "-f", "large")
    assert (done.returncode, b"pulsarish produce --chunking" in done.stderr) == (2, True)
    assert pulsarish("produce", topic, "-f", "large", "--chunking").returncode == 0


@pytest.mark.parametrize(
    ("span", "why"),
    [("nan", "nan is not a number"), *[(span, "is not in the range") for span in ("inf", "1e30", "0", "-1")]],
)
@pytest.mark.parametrize("command", [("topic", "list"), ("consume", "t")], ids=" ".join)
def test_a_timeout_that_is_none(lonely: Pulsarish, command: tuple[str, ...], span: str, why: str) -> None:
    """Sockets would end in a traceback."""
    done = lonely(*command, "--url", "pulsar://127.0.0.1:1", "--timeout", span)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: Invalid value for '--timeout'")
    assert why in done.stderr.decode()


@pytest.mark.parametrize("number", [2**63, 10**30])
@pytest.mark.parametrize(
    "command",
    [
        ("sub", "skip", "t", "s", "--yes", "--count"),
        ("sub", "peek", "t", "s", "--count"),
        ("topic", "examine", "t", "--number"),
        ("topic", "delayed", "t", "--step"),
        ("topic", "create", "t", "--partitions"),
        ("topic", "update-partitions", "t", "--partitions"),
        ("consume", "t", "--count"),
        ("consume", "t", "--dead-letter"),
        ("consume", "t", "--priority"),
        ("serve", "--idle-stop"),
    ],
    ids=" ".join,
)
def test_a_number_beyond_64_bits(lonely: Pulsarish, command: tuple[str, ...], number: int) -> None:
    """Code 2 before anybody is asked, as for any number that cannot be."""
    done = lonely(*command, str(number))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: Invalid value for '-")
    assert f"{command[-1]}'\n{number} is too large; 9223372036854775" in done.stderr.decode()


@pytest.mark.parametrize("text", ["99999999999999999999:0", "1:0:99999999999", "1:0:0:2147483648", "1:-2", "x"])
@pytest.mark.parametrize(
    "command",
    [("consume", "--exit", "--from"), ("sub", "create", "s", "--from"), ("sub", "reset", "s", "--yes", "--to")],
    ids=" ".join,
)
def test_an_id_that_no_broker_has(pulsarish: Pulsarish, topic: str, command: tuple[str, ...], text: str) -> None:
    """Code 2; and what might stand there instead."""
    verbs = 2 if command[0] == "sub" else 1
    done = pulsarish(*command[:verbs], topic, *command[verbs:], text)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"write earliest, latest, " in done.stderr


@pytest.mark.parametrize(
    "command",
    [("consume", "--exit", "--from"), ("sub", "create", "s", "--from"), ("sub", "reset", "s", "--yes", "--to")],
    ids=" ".join,
)
def test_an_id_of_another_partition(pulsarish: Pulsarish, topic: str, command: tuple[str, ...]) -> None:
    """Code 2: it was taken for that of another message."""
    verbs = 2 if command[0] == "sub" else 1
    assert pulsarish("produce", topic, "-m", "x").returncode == 0
    if command[1] == "reset":
        assert pulsarish("sub", "create", topic, "s").returncode == 0
    done = pulsarish(*command[:verbs], topic, *command[verbs:], "1:0:5")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"message id 1:0:5 is of partition 5" in done.stderr


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("produce", "t", "-m", "x", "--initial-sequence-id", "18446744073709551615"), b"initial_sequence_id"),
        (("consume", "t", "-s", "s", "-t", "shared", "--priority", "99999999999"), b"priority_level"),
        (("consume", "t", "-s", "s", "-t", "shared", "--name", "\udcff"), b"consumer_name"),
        (("topic", "policies", "t", "--set", f"messageTTL={'[' * 100_000}"), b"is not JSON"),
        (("topic", "policies", "t", "--set", "backlogQuota=1"), b"takes a quota for each of its types"),
        (("topic", "policies", "t", "--set", "backlogQuota={}"), b"takes a quota for each of its types"),
        (("namespace", "list", NOT_UTF8), b"is not valid"),
        (("namespace", "list", "x" * 10_000), b"is not valid"),
        (("produce", "t", "-m", "x", "--deliver-at", "1960-01-01"), b'--deliver-at "1960-01-01" is before 1970'),
        (("produce", "t", "-m", "x", "--event-time", f"-{2**63 + 1}"), b"is not a number of 64 bits"),
        (("produce", "t", "-m", "x", "--event-time", "9" * 5000), b"is not a time"),
        (("produce", "t", "-m", "x", "--deliver-at", "9" * 5000), b"is not a time"),
    ],
    ids=[
        *("sequence id", "priority", "name", "policy", "quota", "no quota", "tenant", "long tenant", "time"),
        *("event time", "long time", "long delivery time"),
    ],
)
def test_what_no_broker_takes(pulsarish: Pulsarish, command: tuple[str, ...], what: bytes) -> None:
    """Code 2 and a reason; not a traceback, and no waiting for ever."""
    assert pulsarish("produce", "t", "-m", "x").returncode == 0
    done = pulsarish(*command)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert what in done.stderr


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_a_directory_that_is_no_text(lonely: Pulsarish, tmp_path: Path, command: str) -> None:
    """No log can say its name: code 2, and nothing is left there."""
    done = lonely(command, "--data-dir", str(tmp_path / "\udcff"))
    assert (done.returncode, done.stdout, b"is not UTF-8" in done.stderr) == (2, b"", True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("serve",), ("doctor",), ("topic", "list")], ids=" ".join)
@pytest.mark.parametrize("named_by", ["option", "environment"])
def test_a_data_directory_that_is_a_url(
    lonely: Pulsarish, tmp_path: Path, command: tuple[str, ...], named_by: str
) -> None:
    """Code 2; a folder called s3: was made."""
    url = "s3://bucket/data"
    by_option = named_by == "option"
    done = lonely(*command, "--data-dir", url) if by_option else lonely(*command, PULSARISH_DATA_DIR=url)
    assert (done.returncode, done.stdout, b"'s3://bucket/data' is a URL" in done.stderr) == (2, b"", True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["http://me:hush@h:99999", "ftp://me:hush@h", "me:hush@h", "http://me:hush@[::1"])
@pytest.mark.parametrize("option", ["--url", "--http-url"])
def test_a_password_in_an_address_is_not_repeated(lonely: Pulsarish, option: str, url: str) -> None:
    """Code 2; whatever else is wrong with the address."""
    done = lonely("topic", "list", "--url", "pulsar://127.0.0.1:1", option, url)
    assert (done.returncode, b"names a user or a password" in done.stderr, b"hush" in done.stderr) == (2, True, False)


@pytest.mark.parametrize("option", ["--url", "--http-url", "--data-dir"])
@pytest.mark.parametrize("command", [("topic", "list"), ("produce", "t", "-m", "x")], ids=" ".join)
def test_an_empty_address_is_not_the_default_one(pulsarish: Pulsarish, command: tuple[str, ...], option: str) -> None:
    """It is a variable that is not set; who wrote it means another broker than the default one."""
    done = pulsarish(*command, option, "")
    assert (done.returncode, done.stdout, b"is empty" in done.stderr.lower()) == (2, b"", True)


@pytest.mark.parametrize(
    ("addresses", "code"),
    [
        (("pulsar://127.0.0.1:none", None), 2),
        (("pulsar://127.0.0.1:99999", None), 2),
        (("pulsar://127.0.0.1:" + "6" * 5000, None), 2),
        (("pulsar://127.0.0.1:1", "http://127.0.0.1:none"), 2),
        (("pulsar://127.0.0.1:1", "http://[::1"), 2),
        (("pulsar://127.0.0.1:1", "http://127.0.0.1:" + "6" * 5000), 2),
        (("pulsar://127.0.0.1:1", "http://127.0.0.1:99999"), 2),
        (("pulsar://127.0.0.1:1", "http://127.0.0.1:1"), 5),
    ],
)
@pytest.mark.parametrize("command", [("topic", "list"), ("sub", "list", "t")], ids=" ".join)
def test_addresses_that_are_none(
    lonely: Pulsarish, command: tuple[str, ...], addresses: tuple[str, str | None], code: int
) -> None:
    """Code 2 if it cannot be one, 5 if nobody is there; nothing is printed but the reason."""
    url, http_url = addresses
    done = lonely(*command, "--url", url, *(["--http-url", http_url] if http_url else []))
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.startswith(b"error: ")


def test_the_ports_confused(pulsarish: Pulsarish, broker: RunningBroker) -> None:
    """Neither port answers in the other's language; what it says instead is not printed."""
    admin_of_binary = broker.service_url.replace("pulsar:", "http:")
    done = pulsarish("topic", "list", "--url", broker.service_url, "--http-url", admin_of_binary)
    assert (done.returncode, done.stderr.isascii(), b"not an answer in HTTP" in done.stderr) == (5, True, True)
    binary_of_admin = broker.http_url.replace("http:", "pulsar:")
    done = pulsarish("produce", "t", "-m", "x", "--url", binary_of_admin, "--timeout", "5")
    assert (done.returncode, b"give the port of the binary protocol" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    "verb",
    ["topic list", "topic stats t -o json", "consume t --exit", "config show", "sub -h", "produce t -m x", "version"],
)  # fmt: skip
def test_whoever_reads_may_leave(broker: RunningBroker, tmp_path: Path, verb: str) -> None:
    """Every command ends quietly and as if it were done."""
    assert in_shell(tmp_path, broker, f"P produce t -m x >/dev/null; P {verb} | true") == (0, b"", b"")


@pytest.mark.parametrize("verb", ["topic list", "consume t --exit", "produce t -m x", "version"])
def test_closed_streams_lead_nowhere(broker: RunningBroker, tmp_path: Path, verb: str) -> None:
    """Like /dev/null, and no connection is taken for one of them."""
    script = f"P produce t -m x >/dev/null; P {verb} >&- && P {verb} <&- >&- 2>&-"
    assert in_shell(tmp_path, broker, script) == (0, b"", b"")


def test_without_stdin_there_is_nothing_to_send_and_nobody_to_ask(broker: RunningBroker, tmp_path: Path) -> None:
    """The one is done at once, the other refused."""
    assert in_shell(tmp_path, broker, "P produce t <&-") == (0, b"", b"")
    done = in_shell(tmp_path, broker, "P produce t -m x >/dev/null; P topic delete t <&-")
    assert (done.returncode, b"add --yes" in done.stderr) == (2, True)


def test_without_stderr_there_is_still_a_code(broker: RunningBroker, tmp_path: Path) -> None:
    """Scripts look at nothing else."""
    assert in_shell(tmp_path, broker, "P topic stats nobody-made-it 2>&-") == (3, b"", b"")


@pytest.mark.parametrize("verb", ["produce t -m x", "version", "--help", "config show"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_a_failure(
    broker: RunningBroker, tmp_path: Path, verb: str, unbuffered: str
) -> None:
    """Code 1, and why, and nothing of the interpreter's own, whose code is 120."""
    done = in_shell(tmp_path, broker, f"export PYTHONUNBUFFERED={unbuffered}; P {verb} >/dev/full")
    sent = b"confirmed as stored: 1 of 1 message\n" if verb.startswith("produce") else b""
    assert (done.returncode, done.stderr) == (1, sent + b"error: the system refused\nNo space left on device\n")


@pytest.mark.parametrize(
    ("verb", "code"), [("topic stats nobody-made-it", 3), ("topic lst", 2), ("", 2), ("version", 0)]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stderr_leaves_the_code(
    broker: RunningBroker, tmp_path: Path, verb: str, code: int, unbuffered: str
) -> None:
    """What cannot be told is not what failed."""
    script = f"export PYTHONUNBUFFERED={unbuffered}; P {verb} 2>/dev/full >/dev/null"
    assert in_shell(tmp_path, broker, script).returncode == code


def test_both_streams_may_be_full(broker: RunningBroker, tmp_path: Path) -> None:
    """There is a code of ours all the same."""
    assert in_shell(tmp_path, broker, "unset PYTHONUNBUFFERED; P version >/dev/full 2>&1").returncode == 1


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_output_is_utf8_whatever_the_locale(broker: RunningBroker, tmp_path: Path, topic: str, output: str) -> None:
    """JSON has no other encoding, and a pipe no locale."""
    script = f"P produce {topic} -m grün >/dev/null; PYTHONIOENCODING=ascii P consume {topic} --exit -o {output}"
    done = in_shell(tmp_path, broker, script)
    assert (done.returncode, done.stderr, "grün" in done.stdout.decode()) == (0, b"", True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", b"not JSON"),
        (b'{"value":"\xff"}', b"not JSON"),
        pytest.param(b"[" * 100_000, b"not JSON", id="deep"),
        (b"[1]", b"not a JSON object"),
        (b"", b"not JSON"),
        (b'{"value":"\\ud800"}', b"not a text that UTF-8 can express"),
    ],
)
def test_a_line_that_is_no_message(pulsarish: Pulsarish, topic: str, line: bytes, reason: bytes) -> None:
    """Code 2 with its number; those before it are stored, and their ids are there."""
    done = pulsarish("produce", topic, "--input", "jsonl", stdin=b'{"value": "a"}\n' + line + b'\n{"value": "b"}\n')
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 1)
    assert b"line 2" in done.stderr
    assert reason in done.stderr
