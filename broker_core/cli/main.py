# SPDX-License-Identifier: Apache-2.0
"""The command ``pulsarish``: the tree of commands, and the one place where an error becomes an exit code.

Importing this module must stay cheap (a test measures it): commands import the client or the server when they run.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import click

from broker_core import __version__
from broker_core.base.errors import PulsarishError
from broker_core.base.printable import printable
from broker_core.cli.config import config
from broker_core.cli.consume import consume
from broker_core.cli.copies import backup, restore
from broker_core.cli.exits import SIGNALLED, Exit, exit_code
from broker_core.cli.interrupts import SignalledError
from broker_core.cli.keys import keys
from broker_core.cli.metrics import metrics
from broker_core.cli.namespace import namespace
from broker_core.cli.output import report_error, tell
from broker_core.cli.policies import namespace_policies, topic_policies
from broker_core.cli.produce import produce
from broker_core.cli.running import doctor, logs, status, stop
from broker_core.cli.schema import schema
from broker_core.cli.serve import serve
from broker_core.cli.spark_subs import clean
from broker_core.cli.stored_messages import examine, peek
from broker_core.cli.sub import sub
from broker_core.cli.tokens import token
from broker_core.cli.topic import topic
from broker_core.cli.txn import txn

PROGRAM = "pulsarish"


@dataclass(slots=True)
class RootOptions:
    """Options that stand before the verb."""

    debug: bool = False


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failure, 2 usage, 3 not found, 4 not allowed, "
    "5 no broker, 6 timeout, 7 damaged data, 8 disk failed, 9 exists, 10 incompatible schema, 130 interrupted, 129 and "
    "143 SIGHUP and SIGTERM.",
)
@click.version_option(__version__, "-V", "--version", prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, envvar="PULSARISH_DEBUG", help="Show where in the code an error came from.")
@click.pass_obj
def cli(options: RootOptions, debug: bool) -> None:
    """An embedded, durable broker that speaks Apache Pulsar's protocol, and its tools."""
    options.debug = debug


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: eval "$(pulsarish completion bash)"
    """
    from click.shell_completion import get_completion_class

    root = context.find_root()
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}")
    name = root.info_name or "pulsarish"
    click.echo(kind(root.command, {}, name, f"_{name.upper()}_COMPLETE").source())


for _command in (
    serve,
    status,
    stop,
    logs,
    metrics,
    produce,
    consume,
    topic,
    sub,
    namespace,
    schema,
    txn,
    doctor,
    backup,
    restore,
    config,
    keys,
    token,
    completion,
    version,
):
    cli.add_command(_command)
topic.add_command(topic_policies)
topic.add_command(examine)
sub.add_command(peek)
sub.add_command(clean)
namespace.add_command(namespace_policies)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    options = RootOptions()
    _mend_streams()
    try:
        return _run(argv, options)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _report(PulsarishError(f"the system refused: {error.strerror or error}{where}"), Exit.FAILURE, options)
    finally:
        _let_go_of_streams()


def _run(argv: Sequence[str] | None, options: RootOptions) -> int:
    try:
        outcome = cli.main(
            args=None if argv is None else list(argv), prog_name=PROGRAM, standalone_mode=False, obj=options
        )
        sys.stdout.flush()
        return outcome if isinstance(outcome, int) else Exit.OK
    except click.exceptions.NoArgsIsHelpError as error:
        tell(error.format_message())
        return Exit.USAGE
    except click.UsageError as error:
        return _report_usage(error, sys.argv[1:] if argv is None else argv)
    except click.ClickException as error:
        return _report(PulsarishError(error.format_message()), Exit.FAILURE, options)
    except (click.Abort, KeyboardInterrupt) as error:
        cause = error.__cause__  # of click's own
        return SIGNALLED + cause.number if isinstance(cause, SignalledError) else Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has enough (click makes an exit of that, and of nothing else when not standalone).
        return Exit.OK
    except PulsarishError as error:
        return _report(error, exit_code(error), options)


def _let_go_of_streams() -> None:
    """Output that a standard stream does not take any more is dropped, or the interpreter would trip over it at its
    end, with a text and an exit code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _mend_streams() -> None:
    """Standard streams that the caller has closed lead nowhere, or the next file or socket would be taken for one.

    What is printed is UTF-8 whatever the locale, for that is what JSON is.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 # open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _report(error: PulsarishError, code: Exit, options: RootOptions) -> int:
    if options.debug:
        tell(printable(traceback.format_exc().rstrip(), keep="\n"))
    report_error(error)
    return code


def _report_usage(error: click.UsageError, argv: Sequence[str]) -> int:
    near: Sequence[str] = getattr(error, "possibilities", None) or ()
    command = error.ctx.command_path if error.ctx else _command_path(argv)
    meant = f'did you mean "{near[0]}"? ' if near else ""
    what = error.message if near else error.format_message()
    report_error(PulsarishError(what.rstrip("."), hint=f"{meant}see: {command} --help"))
    return Exit.USAGE


def _command_path(argv: Sequence[str]) -> str:
    """The command that ``argv`` names. Click does not tell of which one an option lacks its value."""
    path = [PROGRAM]
    command: click.Command = cli
    for word in argv:
        if isinstance(command, click.Group) and word in command.commands:
            path.append(word)
            command = command.commands[word]
    return " ".join(path)
