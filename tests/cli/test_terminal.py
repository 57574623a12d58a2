# SPDX-License-Identifier: Apache-2.0
"""What a person at a terminal sees: tables, colours, help, completion; and how quickly."""

from __future__ import annotations

import os
import pty
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.testing.running_broker import RunningBroker
from tests.cli.conftest import Pulsarish, command_line, environment


def at_a_terminal(home: Path, *arguments: str, typed: bytes = b"", **env: str) -> str:
    """Everything that the command writes to a terminal of 120 columns, and its exit code on the last line."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    with subprocess.Popen(
        command_line(*arguments), stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment(home, **{"COLUMNS": "120", "TERM": "xterm", **env}),
    ) as process:  # fmt: skip
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 65536):
                written += chunk
        except OSError:
            pass  # Linux reports the end of the other side as an error
        os.close(ours)
        code = process.wait(120)
    return f"{written.decode()}\n{code}".replace("\r\n", "\n")


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_gets_tables_and_a_pipe_json(broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path) -> None:
    """The same command, for people and for programs."""
    pulsarish("topic", "create", "orders", "-p", "2")
    shown = _plain(at_a_terminal(tmp_path, "topic", "list", PULSARISH_DATA_DIR=str(broker.data_dir)))
    header, row = shown.splitlines()[0].split(), shown.splitlines()[1].split()
    assert header[:3] == ["TOPIC", "PARTITIONS", "MESSAGES"]
    assert row[:3] == ["persistent://public/default/orders", "2", "0"]
    assert pulsarish("topic", "list").stdout.startswith(b'{"topic": "persistent://public/default/orders"')
    assert pulsarish("topic", "list", "-o", "table").stdout.startswith(b"TOPIC ")
    assert pulsarish("topic", "list", "-o", "json").stdout.startswith(b"[\n")


def test_a_narrow_terminal_cuts_nothing_off(broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path) -> None:
    """Names stay in one piece, to be copied; of the settings those columns are there that the help speaks of."""
    pulsarish("topic", "create", "a-topic-with-a-longer-name")
    here = str(broker.data_dir)
    listed = _plain(at_a_terminal(tmp_path, "topic", "list", PULSARISH_DATA_DIR=here, COLUMNS="80"))
    assert "persistent://public/default/a-topic-with-a-longer-name" in listed
    assert "…" not in listed
    shown = _plain(at_a_terminal(tmp_path, "config", "show", COLUMNS="80"))
    assert shown.splitlines()[0].split() == ["NAME", "VALUE", "ORIGIN"]
    assert "subscriptionKeySharedUseClassicPersistentImplementation" in shown
    assert "…" not in shown


@pytest.mark.parametrize("columns", ["30", "60", "80", "100"])
@pytest.mark.parametrize("command", [("topic", "list"), ("topic", "stats", "counted"), ("sub", "list", "counted")])
def test_heads_and_digits_stay_in_one_piece(
    broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path, columns: str, command: tuple[str, ...]
) -> None:
    """Where a table does not fit, each row has its values below its name."""
    pulsarish("topic", "create", "counted")
    pulsarish("sub", "create", "counted", "reader", "--from", "earliest")
    pulsarish("produce", "counted", stdin=b"x\n" * 1001)
    shown = _plain(at_a_terminal(tmp_path, *command, PULSARISH_DATA_DIR=str(broker.data_dir), COLUMNS=columns))
    assert re.search(r"UNREAD|unread [0-9]+,[0-9]{3}\b", shown)
    assert re.search(r"\b[0-9]+,[0-9]{3}\b", shown)
    assert not re.search(r"^\s*[0-9,]+\s*$", shown.rpartition("\n")[0], re.MULTILINE)
    assert all(len(line) <= int(columns) for line in shown.splitlines() if not line.startswith("persistent://"))


def test_who_says_no_is_told_that_nothing_was_done(broker: RunningBroker, pulsarish: Pulsarish, tmp_path: Path) -> None:
    """Code 1: Ctrl-C has one of its own."""
    pulsarish("topic", "create", "kept")
    here = str(broker.data_dir)
    shown = _plain(at_a_terminal(tmp_path, "topic", "delete", "kept", typed=b"n\n", PULSARISH_DATA_DIR=here))
    assert shown.splitlines()[-1] == "1"
    assert "error: nothing was done\nyou said no\n" in shown
    assert pulsarish("topic", "stats", "kept").returncode == 0


def test_an_empty_list_teaches_the_next_command(tmp_path: Path) -> None:
    """On stderr and only for people; a program gets an empty output."""
    with RunningBroker(tmp_path / "data") as broker:
        shown = at_a_terminal(tmp_path, "topic", "list", PULSARISH_DATA_DIR=str(broker.data_dir))
    assert "no topics in public/default yet; make one with: pulsarish produce hello -m hi" in shown


def test_colours_are_for_terminals_that_want_them(tmp_path: Path) -> None:
    """Errors are red on a terminal; never in a pipe, never with NO_COLOR."""
    assert "\x1b[31m" in at_a_terminal(tmp_path, "topic", "list")
    assert "\x1b[" not in at_a_terminal(tmp_path, "topic", "list", NO_COLOR="1")
    done = subprocess.run(command_line("topic", "list"), capture_output=True, env=environment(tmp_path), check=False)
    assert b"\x1b[" not in done.stderr


def test_a_person_who_starts_a_broker_is_told_what_to_do_next(tmp_path: Path) -> None:
    """Data directory, durability, a command to paste, and that Ctrl-C is safe: on stderr, beside the one line."""
    shown = at_a_terminal(tmp_path, "serve", "--port", "0", "--http-port", "0", "--idle-stop", "1")
    assert shown.startswith("ready pulsar://")
    for words in (str(tmp_path / ".local/share/pulsarish"), "sync", "pulsarish produce hello -m hi --url", "Ctrl-C"):
        assert words in shown


@pytest.mark.parametrize(
    ("setting", "word"),
    [("openToLocalUsers=false", "closed"), ("openToLocalUsers=true", "open"), ("openToNetwork=true", "open")],
)
def test_a_broker_that_starts_at_a_terminal_says_who_is_let_in(tmp_path: Path, setting: str, word: str) -> None:
    """In one line."""
    ports = ("--port", "0", "--http-port", "0", "--idle-stop", "1")
    assert f"\n{word} " in at_a_terminal(tmp_path, "serve", *ports, "--set", setting).replace("\r", "")


def test_help_and_version_need_no_broker(lonely: Pulsarish) -> None:
    """Everywhere -h works, and the version is the package's."""
    from broker_core import __version__

    assert lonely("--version").stdout.decode() == f"pulsarish {__version__}\n"
    assert lonely("version").stdout.decode() == f"{__version__}\n"
    for command in ([], ["serve"], ["topic"], ["topic", "create"], ["sub"], ["config", "show"]):
        done = lonely(*command, "-h")
        assert (done.returncode, done.stdout.startswith(b"Usage: pulsarish")) == (0, True), command


def test_settings_are_shown_with_their_origin(lonely: Pulsarish) -> None:
    """One object for each setting: value, origin, what it accepts."""
    shown = lonely("config", "show", "--set", "maxConnections=7", PULSARISH_DURABILITY="async").stdout.decode()
    assert '"name": "maxConnections", "value": 7, "origin": "--set"' in shown
    assert '"name": "durability", "value": "async", "origin": "environment PULSARISH_DURABILITY"' in shown
    assert '"name": "clusterName", "value": "standalone", "origin": "default"' in shown
    assert lonely("config", "docs").stdout.startswith(b"# Settings of the broker")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(lonely: Pulsarish, shell: str) -> None:
    """The script is printed, and asks the command itself for the words."""
    assert b"_PULSARISH_COMPLETE" in lonely("completion", shell).stdout


def test_help_is_quick_and_loads_nothing_that_it_does_not_need() -> None:
    """Not much more processor time than click alone, the best of some tries; no client, server, protobuf or tables.

    What is compared was run on the same machine at the same time: 100 ms of an idle one are 200 of a busy one.
    """
    code = (
        "import sys; from broker_core.cli.main import main; main(['--help']);"
        "heavy = {'asyncio', 'google', 'http', 'msgspec', 'numpy', 'pyarrow', 'rich', 'ssl', 'starlette', 'uvloop'};"
        "print('LOADED', sorted(heavy & set(sys.modules)), [m for m in sys.modules if m.startswith(("
        "'broker_core.client', 'broker_core.server', 'broker_core.storage', 'broker_core.wire'))])"
    )
    runs = [(_processor_s(code), _processor_s("import click")) for _ in range(5)]
    assert all("LOADED [] []" in said for (_, said), _ in runs)
    assert min(ours for (ours, _), _ in runs) < 2.5 * min(alone for _, (alone, _) in runs)


def _processor_s(code: str) -> tuple[float, str]:
    """What a Python of its own takes for ``code``, and what that prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout
