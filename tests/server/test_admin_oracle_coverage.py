# SPDX-License-Identifier: Apache-2.0
"""Each path and method of docs/openapi.json is compared with a real Apache Pulsar, or is listed with the reason.

The requests of all comparisons are counted: modules named ``test_admin_oracle_...`` have them as values. So this needs
no Apache Pulsar, and whoever adds a path is told here that its comparison is missing.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.server.oracle import Ask, accepted

HERE: Final = Path(__file__).resolve().parent
DOCUMENT: Final = HERE.parents[1] / "docs" / "openapi.json"
METHODS: Final = ("get", "put", "post", "delete")


def operations() -> set[str]:
    """Each operation of the document: its method and its path."""
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    return {f"{method.upper()} {path}" for path, item in paths.items() for method in METHODS if method in item}


@cache
def patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The paths of the document, those with the fewest parameters first: a request is for the plainest that fits."""
    paths = sorted({each.partition(" ")[2] for each in operations()}, key=lambda path: path.count("{"))
    return tuple((path, re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))) for path in paths)


def asks_in(value: Any) -> Iterator[Ask]:
    """The requests in a value, however deep."""
    if isinstance(value, Ask):
        yield value
    elif isinstance(value, Mapping):
        yield from asks_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from asks_in(each)


def compared() -> set[str]:
    """Operations that at least one comparison asks for."""
    found = set()
    for path in HERE.glob("test_admin_oracle*.py"):
        if path != Path(__file__):
            module = importlib.import_module(f"tests.server.{path.stem}")
            found |= {operation_of(ask) for value in list(vars(module).values()) for ask in asks_in(value)}
    return found


def operation_of(ask: Ask) -> str:
    """The operation that a request is for; "" where the document has none."""
    path = ask.path.partition("?")[0].format("public/own")
    whole = path if path.startswith("/") else f"/admin/v2/{path}"
    return next((f"{ask.method} {found}" for found, pattern in patterns() if pattern.fullmatch(whole)), "")


def test_each_operation_is_compared_or_listed() -> None:
    """1.1.5: a path that is never asked of both is a gap; a line for a path that is asked has outlived its reason."""
    listed = accepted("Not compared")
    missing = operations() - compared()
    assert sorted(each for each in missing if not any(line.fullmatch(each) for line in listed)) == []
    assert [line.pattern for line in listed if not any(line.fullmatch(each) for each in missing)] == []
