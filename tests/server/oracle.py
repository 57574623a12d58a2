# SPDX-License-Identifier: Apache-2.0
"""Asking our broker and a real Apache Pulsar the same over HTTP, and what differs between their answers.

What may differ is read from docs/admin-differences.md, where each line has its reason.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from broker_core.client import Client

PATIENCE_S: Final = 20.0
"""How long an Apache Pulsar on a busy machine may show what was there before a change."""

TIMEOUT_S: Final = 120.0

N: Final = "namespaces/{}"
T: Final = "persistent/{}/t"
Q: Final = "persistent/{}/q"
NOTHING: Final = "persistent/{}/nothing"
"""Paths of a test's own namespace: of itself, a topic, a topic with partitions, and one that is never made."""


DIFFERENCES: Final = Path(__file__).resolve().parents[2] / "docs" / "admin-differences.md"


@cache
def accepted(heading: str) -> tuple[re.Pattern[str], ...]:
    """The lines of a table of ``DIFFERENCES``."""
    section = DIFFERENCES.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| `(.+?)` \| .+ \|$", section, re.MULTILINE)
    return tuple(re.compile(re.escape(line).replace(r"\*", ".*"), re.DOTALL) for line in lines)


class Ask(NamedTuple):
    """One request; a path without a slash at its beginning is one below ``/admin/v2/``. ``same``: the JSON must be
    equal, else only the status, and the names and types of ``fields``."""

    method: str
    path: str
    body: str | None = None
    same: bool = True
    fields: tuple[str, ...] = ()
    media_type: str = "application/json"

    @property
    def may_differ(self) -> bool:
        """Whether the answers to it differ on purpose."""
        lines = (f"{self.method} {self.path}", f"{self.method} {self.path} {self.body}")
        return any(listed.fullmatch(line) for listed in accepted("Answers") for line in lines)


class Side(NamedTuple):
    """Where one of the two brokers is."""

    http_url: str
    service_url: str

    def admin(self) -> httpx.Client:
        """A client of its admin REST; paths are those of an ``Ask``."""
        return httpx.Client(base_url=f"{self.http_url}/admin/v2/", timeout=TIMEOUT_S)


class Both(NamedTuple):
    """The two brokers, and the namespace that this test has on both."""

    ours: Side
    theirs: Side
    namespace: str

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.theirs

    def fill(self) -> None:
        """Send ten messages to the topic ``T`` of both, each an entry of its own."""
        for side in self.sides:
            with (
                Client(side.service_url) as client,
                client.create_producer(f"{self.namespace}/t", batching_enabled=False) as producer,
            ):
                for number in range(10):
                    producer.send(b"%d" % number)


def answer_to(broker: httpx.Client, ask: Ask, namespace: str) -> tuple[int, Any]:
    """What one broker says: status, and the JSON, or the text if it is none."""
    headers = {} if ask.body is None else {"Content-Type": ask.media_type}
    path = ask.path.format(namespace)
    url = broker.base_url.join(path) if path.startswith("/") else path
    answer = broker.request(ask.method, url, content=ask.body, headers=headers)
    try:
        return answer.status_code, answer.json()
    except json.JSONDecodeError:
        return answer.status_code, answer.text if answer.status_code < 300 else ""


def shape(value: Any, path: str) -> str:
    """The type of the field that a dotted path names."""
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return "missing"
        value = value[name]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def difference(ask: Ask, ours: tuple[int, Any], theirs: tuple[int, Any]) -> str:
    """In words; "" if there is none."""
    if ours[0] != theirs[0]:
        return f"status {ours[0]}, Pulsar's {theirs[0]}: {ours[1]} | {theirs[1]}"
    if ask.same and ours[1] != theirs[1]:
        return f"{ours[1]}, Pulsar's {theirs[1]}"
    apart = [field for field in ask.fields if shape(ours[1], field) != shape(theirs[1], field)]
    return f"fields {apart}" if apart else ""


def compare(both: Both, asks: list[Ask], stricter: Collection[tuple[str, str]] = ()) -> list[str]:
    """What is not as it should be; answers to ``stricter`` may differ, too."""
    found: list[str] = []
    with both.ours.admin() as ours, both.theirs.admin() as theirs:
        for ask in asks:
            expected = (ask.method, ask.path) in stricter or ask.may_differ
            # Where one difference has stayed there is something to mend, and the others need no long look.
            patience_s = 0.0 if expected or found or ask.method != "GET" else PATIENCE_S
            one = answer_to(ours, ask, both.namespace)
            apart = _difference_that_stays(ask, one, theirs, both.namespace, patience_s)
            if apart and not expected:
                found.append(f"{ask.method} {ask.path} {ask.body or ''}: {apart}")
    return found


def _difference_that_stays(
    ask: Ask, ours: tuple[int, Any], theirs: httpx.Client, namespace: str, patience_s: float
) -> str:
    """What is still different when Pulsar was asked for so long: what it has changed it may show a moment later."""
    deadline = time.monotonic() + patience_s
    while apart := difference(ask, ours, answer_to(theirs, ask, namespace)):
        if time.monotonic() >= deadline:
            return apart
        time.sleep(0.1)
    return ""
