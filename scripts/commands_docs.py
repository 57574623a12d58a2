# SPDX-License-Identifier: Apache-2.0
"""The page ``docs/cli.md``, made from the declaration of the commands.

Pure text: nothing here depends on how click lays out its own help, which changes with its versions. Options that many
commands have in common are told once.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Final

import click

from broker_core.cli.exits import MEANINGS
from broker_core.cli.output import format_option
from broker_core.cli.target import target_options

_INTRO: Final = (
    "# The command `pulsarish`",
    "",
    "Made from the code by `make docs`; do not edit.",
    "",
    "Data goes to stdout, talk and errors to stderr. Rows are tables on a terminal and JSON lines in a pipe;",
    "`-o` chooses. Names of JSON fields are stable. `NO_COLOR` is honoured.",
    "An error has up to three lines: what, why, what to do.",
    "Output is UTF-8. Whoever reads it may leave (`| head -1`): that ends a command as if it were done.",
    "`produce` goes on to the end of its input then. A standard stream that is closed leads nowhere, like `/dev/null`;",
    "`consume -s` refuses it.",
    "What a terminal would obey in names, keys and payloads is escaped; `-o raw` into a pipe is as it is.",
    "",
    "A value of 32 MiB or more takes little memory in `produce -f FILE --chunking` and in `consume -o raw` into a file",
    "or pipe. The first reads the file chunk by chunk as they are sent. The second collects the chunks in a temporary",
    "file without a name, in `$TMPDIR` or else `/var/tmp`, and writes the value when it is complete, so that no part",
    "of an incomplete one is ever in the output. With `--compression` a value is compressed as a whole, so it is in",
    "memory on both sides, and so is each value in the other forms of output.",
    "",
    "## Exit codes",
    "",
)


_TABLE: Final = ("", "| option | meaning |", "|---|---|")


def commands_markdown(root: click.Command, program: str) -> str:
    """Exit codes, options that many commands have, and every command with its own options."""
    lines = [*_INTRO, "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items()]
    lines += ["", "## Options in common", "", "A command says at its end which of these it has."]
    for title, rows in _common_options().items():
        lines += ["", f"### {title}", *_TABLE, *rows]
    for path, command in _walk(root, program):
        lines += _command_lines(path, command)
    return "\n".join(lines) + "\n"


@cache
def _common_options() -> dict[str, list[str]]:
    """The rows of options that are declared once for many commands, by their title."""
    return {
        "Which broker": _option_rows(click.command()(target_options(lambda target: None))),
        "Form of output": _option_rows(click.command()(format_option(lambda output: None))),
    }


def _walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _walk(child, f"{path} {name}")


def _command_lines(path: str, command: click.Command) -> list[str]:
    """One section."""
    arguments = [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]
    rows = _option_rows(command)
    usage = " ".join([path, *(["COMMAND"] if isinstance(command, click.Group) else []), *arguments])
    lines = ["", f"## {path}", "", f"    {usage}{' [OPTIONS]' if rows else ''}", "", *_help_lines(command)][:-1]
    common = {title: options for title, options in _common_options().items() if set(options) <= set(rows)}
    own = [row for row in rows if not any(row in options for options in common.values())]
    if own:
        lines += [*_TABLE, *own]
    if common:
        links = [f"[{title.lower()}](#{title.lower().replace(' ', '-')})" for title in common]
        lines += ["", f"Options in common: {', '.join(links)}."]
    return lines


def _option_rows(command: click.Command) -> list[str]:
    return [_option_row(p) for p in command.params if isinstance(p, click.Option)]


def _help_lines(command: click.Command) -> Iterator[str]:
    """The help text; what click must not re-wrap (marked by a backspace) are examples, and so code here."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        example = paragraph.startswith("\b")
        for line in paragraph.removeprefix("\b\n").splitlines():
            yield f"    {line}" if example else line
        yield ""


def _option_row(option: click.Option) -> str:
    names = "`, `".join([*option.opts, *option.secondary_opts])
    if isinstance(option.type, click.Choice):
        value = " " + "\\|".join(option.type.choices)
    elif option.is_flag:
        value = ""
    else:
        value = f" {option.metavar or (option.name or '').upper().replace('_', '-')}"
    return f"| `{names}{value}` | {option.help}{_default(option)} |"


def _default(option: click.Option) -> str:
    """The default of an option. Of a flag with an opposite it is the name of one of the two; any other flag is off."""
    if not option.show_default or (option.is_flag and not option.secondary_opts):
        return ""
    told = (option.opts if option.default else option.secondary_opts)[0] if option.is_flag else option.default
    return f" Default {told}."
