# SPDX-License-Identifier: Apache-2.0
"""Asking our broker and a real Apache Pulsar the same over HTTP, and what differs between their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import httpx

PATIENCE_S: Final = 20.0
"""How long an Apache Pulsar on a busy machine may show what was there before a change."""

TIMEOUT_S: Final = 120.0


class Ask(NamedTuple):
    """One request. ``same``: the JSON must be equal, else only the status, and the names and types of ``fields``."""

    method: str
    path: str
    body: str | None = None
    same: bool = True
    fields: tuple[str, ...] = ()
    media_type: str = "application/json"


class Both(NamedTuple):
    """The two brokers, and the namespace that this test has on both."""

    ours: str
    theirs: str
    service_urls: tuple[str, str]
    namespace: str


def answer_to(broker: httpx.Client, ask: Ask, namespace: str) -> tuple[int, Any]:
    """What one broker says: status, and the JSON, or the text if it is none."""
    headers = {} if ask.body is None else {"Content-Type": ask.media_type}
    answer = broker.request(ask.method, ask.path.format(namespace), content=ask.body, headers=headers)
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
    """What is not as it should be; answers to ``stricter`` may differ."""
    found: list[str] = []
    with _admin(both.ours) as ours, _admin(both.theirs) as theirs:
        for ask in asks:
            expected = (ask.method, ask.path) in stricter
            # Where one difference has stayed there is something to mend, and the others need no long look.
            patience_s = 0.0 if expected or found or ask.method != "GET" else PATIENCE_S
            one = answer_to(ours, ask, both.namespace)
            apart = _difference_that_stays(ask, one, theirs, both.namespace, patience_s)
            if apart and not expected:
                found.append(f"{ask.method} {ask.path} {ask.body or ''}: {apart}")
    return found


def _admin(base: str) -> httpx.Client:
    return httpx.Client(base_url=f"{base}/admin/v2/", timeout=TIMEOUT_S)


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
