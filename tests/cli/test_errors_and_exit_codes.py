# SPDX-License-Identifier: Apache-2.0
"""Exit codes as documented, and errors that say what, why and what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker_core.base import errors
from broker_core.base.runtime import RuntimeInfo
from broker_core.cli.exits import MEANINGS, Exit, exit_code
from broker_core.cli.main import main
from broker_core.testing.running_broker import HeldPort, RunningBroker
from tests.cli.conftest import Pulsarish, answering

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_code_is_documented() -> None:
    """docs/cli.md lists exactly the codes there are."""
    page = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert set(MEANINGS) == set(Exit)
    assert all(f"| {code.value} | {meaning} |" in page for code, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), Exit.USAGE),
        (errors.InvalidTopicNameError("x"), Exit.USAGE),
        (errors.TopicNotFoundError("x"), Exit.NOT_FOUND),
        (errors.SubscriptionNotFoundError("x"), Exit.NOT_FOUND),
        (errors.AuthenticationError("x"), Exit.AUTH),
        (errors.AuthorizationError("x"), Exit.AUTH),
        (errors.ConnectionLostError("x"), Exit.UNREACHABLE),
        (errors.OperationTimeoutError("x"), Exit.TIMEOUT),
        (errors.CorruptEntryError("x"), Exit.DAMAGE),
        (errors.DataFormatError("x"), Exit.DAMAGE),
        (errors.DataDirLockedError("x"), Exit.FAILURE),
        (errors.ConsumerBusyError("x"), Exit.FAILURE),
    ],
)
def test_errors_have_their_codes(error: errors.PulsarishError, code: Exit) -> None:
    """The table from the error tree to codes."""
    assert exit_code(error) == code


def test_without_a_broker_the_error_says_how_to_start_one(lonely: Pulsarish) -> None:
    """Code 5, for every command that needs one."""
    for command in (("produce", "t", "-m", "x"), ("consume", "t"), ("topic", "list"), ("sub", "list", "t")):
        done = lonely(*command)
        assert (done.returncode, done.stdout) == (5, b""), command
        assert b"pulsarish serve" in done.stderr


def test_a_broker_that_was_killed_left_a_note_that_is_not_believed(lonely: Pulsarish, tmp_path: Path) -> None:
    """broker.json of a dead process leads to a refused connection, code 5 within the timeout."""
    held = HeldPort()  # nobody listens there, and nobody else will
    address = f"127.0.0.1:{held.number}"
    note = RuntimeInfo(pid=1, service_url=f"pulsar://{address}", http_url=f"http://{address}", version="0")
    (tmp_path / "broker.json").write_bytes(note.encode())
    for command in (("produce", "t", "-m", "x"), ("topic", "list")):
        done = lonely(*command, "--data-dir", str(tmp_path), "--timeout", "4")
        assert done.returncode == 5, done.stderr
    held.release()


def test_a_peer_that_never_answers_is_a_timeout(lonely: Pulsarish) -> None:
    """Code 6, after --timeout; the outcome is unknown and the text does not claim otherwise."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for command in (("produce", "t", "-m", "x"), ("topic", "list")):
            done = lonely(
                *command, "--url", f"pulsar://127.0.0.1:{port}", "--http-url", f"http://127.0.0.1:{port}",
                "--timeout", "0.5",
            )  # fmt: skip
            assert done.returncode == 6, done.stderr


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 3), (409, 1), (500, 1)])
def test_answers_of_the_admin_port_have_codes(
    status: int, code: int, broker: RunningBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """The status decides the code, and the broker's own reason is shown."""
    with answering(status, b'{"reason": "because of the moon"}') as url:
        assert main(["topic", "list", "--url", broker.service_url, "--http-url", url]) == code
    assert "because of the moon" in capfd.readouterr().err


def test_a_port_that_speaks_something_else_is_a_failure(
    broker: RunningBroker, capfd: pytest.CaptureFixture[str]
) -> None:
    """A proxy's page of HTML is not an answer."""
    with answering(200, b"<html>") as url:
        assert main(["topic", "list", "--url", broker.service_url, "--http-url", url]) == 1
    assert "did not answer with JSON" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["serv"], ["error: No such command 'serv'", 'did you mean "serve"? see: pulsarish --help']),
        (["topic", "lst"], ["error: No such command 'lst'", 'did you mean "list"? see: pulsarish topic --help']),
        (["serve", "--prt"], ["error: No such option '--prt'", 'did you mean "--port"? see: pulsarish serve --help']),
        (["consume"], ["error: Missing argument 'TOPIC'", "see: pulsarish consume --help"]),
        (
            ["produce", "a/b", "-m", "x", "--url", "pulsar://127.0.0.1:1"],
            [
                "error: topic name 'a/b' is not valid",
                "a name without a domain has no slash, or the two of tenant/namespace/topic",
                "write topic, tenant/namespace/topic or persistent://tenant/namespace/topic",
            ],
        ),
        (
            ["topic", "list", "--url", "localhost:6650"],
            [
                "error: service URL 'localhost:6650' is not valid",
                "write pulsar://host:port[,host:port], or pulsar+ssl:// for TLS",
            ],
        ),
        (
            ["topic", "list", "--url"],
            ["error: Option '--url' requires an argument", "see: pulsarish topic list --help"],
        ),
        (
            ["topic", "list", "--url", "pulsar://a:1", "--data-dir", "d"],
            ["error: --url and --data-dir both name a broker", "give one of them"],
        ),
    ],
)
def test_usage_errors_suggest_what_was_meant(
    arguments: list[str], lines: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Code 2, on stderr, in up to three lines."""
    assert main(arguments) == 2
    captured = capfd.readouterr()
    assert (captured.out, captured.err.splitlines()) == ("", lines)


def test_debug_shows_where_an_error_came_from(lonely: Pulsarish) -> None:
    """--debug before the verb, or PULSARISH_DEBUG."""
    assert b"Traceback" not in lonely("topic", "list").stderr
    assert b"Traceback" in lonely("--debug", "topic", "list").stderr
    assert b"Traceback" in lonely("topic", "list", PULSARISH_DEBUG="1").stderr


def test_the_address_may_come_from_the_environment(lonely: Pulsarish) -> None:
    """PULSARISH_SERVICE_URL stands in for --url; --data-dir is nearer and wins."""
    assert b"pulsar://127.0.0.1:1\n" in lonely("topic", "list", PULSARISH_SERVICE_URL="pulsar://127.0.0.1:1").stderr
    done = lonely("topic", "list", "--data-dir", "none", PULSARISH_SERVICE_URL="pulsar://127.0.0.1:1")
    assert b'no broker runs on "none"' in done.stderr


def test_a_directory_below_home_may_begin_with_a_tilde(lonely: Pulsarish, tmp_path: Path) -> None:
    """As for Spark: shells do not expand it behind = or in a file of variables, and no folder is ever called ~."""
    for done in (lonely("topic", "list", "--data-dir=~/d"), lonely("topic", "list", PULSARISH_DATA_DIR="~/d")):
        assert (done.returncode, f'no broker runs on "{tmp_path}/d"' in done.stderr.decode()) == (5, True)
    assert lonely("doctor", "--data-dir=~/d").stderr.startswith(f"error: {tmp_path}/d is no data directory".encode())


def test_who_names_a_broker_on_the_command_line_means_no_other(pulsarish: Pulsarish, broker: RunningBroker) -> None:
    """An admin address in the environment is that of another broker, on which a topic would be deleted."""
    elsewhere = "http://127.0.0.1:1"
    assert pulsarish("topic", "list", PULSARISH_HTTP_URL=elsewhere).returncode == 5
    assert pulsarish("topic", "list", "--data-dir", str(broker.data_dir), PULSARISH_HTTP_URL=elsewhere).returncode == 0
    by_url = pulsarish("topic", "list", "--url", broker.service_url, PULSARISH_HTTP_URL=elsewhere)
    assert by_url.returncode == 0
