# SPDX-License-Identifier: Apache-2.0
"""Pages lead to what is there: links, paths, commands and their options, names of Python, options of the source."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

import pulsarish_spark
from broker_core.cli.main import cli as pulsarish
from pulsarish_spark import progress
from pulsarish_spark.__main__ import commands as tools
from pulsarish_spark.options.table import OPTIONS

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PAGES: Final = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("*.md"))]
COMMANDS: Final = {"pulsarish": pulsarish, "python -m pulsarish_spark": tools}
_CODE: Final = re.compile(r"^```\w*\n(.*?)^```|^ {4}(\S[^\n]*)$|`([^`]+)`", re.MULTILINE | re.DOTALL)


_LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_PATH: Final = re.compile(
    r"(?<![\w./-])(?:broker_core|pulsarish_spark|tests|docs|scripts|examples)/[\w/-]*\w(?:\.\w+)?"
)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_its_heading(page: Path) -> None:
    """A path without a link is one, too, from the root."""
    text = page.read_text(encoding="utf-8")
    for link, anchor in _LINK.findall(text):
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
    assert [path for path in _PATH.findall(_LINK.sub("", text)) if not (REPOSITORY / path).exists()] == []


def lines(page: Path) -> Iterator[str]:
    """What a page has as code, line by line; of a pipe each part."""
    for block, indented, inline in _CODE.findall(page.read_text(encoding="utf-8")):
        for line in [*block.splitlines(), indented, " ".join(inline.split())]:
            yield from map(str.strip, line.split(" | "))


def typed(page: Path) -> Iterator[tuple[str, click.Command, list[str]]]:
    """Each command line of ours on a page: as it is written, the command that it starts, and what comes behind."""
    for line in lines(page):
        for start, command in COMMANDS.items():
            if line.startswith(f"{start} "):
                words = shlex.split(line.removeprefix(start).replace("'backlogQuota", "backlogQuota"), comments=True)
                yield line, command, words


def test_commands_on_pages_are_found() -> None:
    """Or the next test would see nothing."""
    assert {line for line, *_ in typed(REPOSITORY / "README.md")} >= {
        "python -m pulsarish_spark describe numbers",
        "pulsarish consume numbers --exit",
    }
    with pytest.raises(AssertionError, match="emit is no command"):
        resolved(pulsarish, ["emit", "numbers"])


def resolved(command: click.Command, words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name."""
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z]+", words[0]):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"{words[0]} is no command"
        command, words = found, words[1:]
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_on_a_page_is_there_with_its_options(page: Path) -> None:
    """Nobody is told to type what is refused."""
    for line, start, words in typed(page):
        command, rest = resolved(start, words)
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
        given = {word.partition("=")[0] for word in rest if re.fullmatch(r"-[a-zA-Z]|--[a-z][a-z-]*(=.*)?", word)}
        assert given <= known, f"{line}: {given - known} of {sorted(known)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_names_what_there_is(page: Path) -> None:
    """Its blocks compile; what it takes from the package, and each option of the source or the sink, exists."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        compile(block, page.name, "exec")
    for line in lines(page):
        for module, name in re.findall(r"\b(pulsarish_spark|progress)\.([A-Za-z]\w*)\(", line):
            assert hasattr(pulsarish_spark if module == "pulsarish_spark" else progress, name), line
        known = {name.lower() for option in OPTIONS for name in (option.name, *option.aliases)} | {"checkpointlocation"}
        for name in re.findall(r"\.option\(\s*\"([^\"]+)\"", line):
            assert name.lower() in known, line


def test_each_dependency_is_told_with_its_use() -> None:
    """docs/dependencies.md has a line for what pyproject.toml asks for, and for nothing else."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    page = (REPOSITORY / "docs/dependencies.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (?!package |-)([^|]+) \|", page, re.MULTILINE)
    told = [name for cell in first_cells for name in cell.split(", ")]
    assert len(told) == len(set(told))
    assert set(told) == {re.split(r"[>=<;\[ ]", each)[0] for each in wanted} - {project["name"]}
