# SPDX-License-Identifier: Apache-2.0
"""Asking our broker and a real Apache Pulsar the same over HTTP, and what differs between their answers."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import httpx


class Ask(NamedTuple):
    """One request. ``same``: the JSON must be equal, else only the status, and the names and types of ``fields``."""

    method: str
    path: str
    body: str | None = None
    same: bool = True
    fields: tuple[str, ...] = ()


class Both(NamedTuple):
    """The two brokers, and the namespace that this test has on both."""

    ours: str
    theirs: str
    service_urls: tuple[str, str]
    namespace: str


def answers(base: str, asks: list[Ask], namespace: str) -> list[tuple[int, Any]]:
    """What one broker says: status, and the JSON, or the text if it is none."""
    found = []
    with httpx.Client(base_url=f"{base}/admin/v2/", timeout=30) as client:
        for ask in asks:
            headers = {} if ask.body is None else {"Content-Type": "application/json"}
            answer = client.request(ask.method, ask.path.format(namespace), content=ask.body, headers=headers)
            if ask.method != "GET" and ask.path.startswith("persistent"):
                time.sleep(0.15)  # Pulsar reads the policies of topics back from a topic of their own
            try:
                found.append((answer.status_code, answer.json()))
            except json.JSONDecodeError:
                found.append((answer.status_code, answer.text if answer.status_code < 300 else ""))
    return found


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
    ours, theirs = (answers(base, asks, both.namespace) for base in (both.ours, both.theirs))
    found = []
    for ask, one, other in zip(asks, ours, theirs, strict=True):
        apart = difference(ask, one, other)
        if apart and (ask.method, ask.path) not in stricter:
            found.append(f"{ask.method} {ask.path} {ask.body or ''}: {apart}")
    return found
