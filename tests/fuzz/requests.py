# SPDX-License-Identifier: Apache-2.0
"""Random requests to the admin REST, made from its OpenAPI document, and a client that sends them.

Names are those of things that exist, or ill; bodies fit the document, or are any JSON, or none. Owns nothing of what
may be changed by whom.
"""

from __future__ import annotations

import http.client
import json
import random
import string
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from tests.fuzz.clients import Inputs
from tests.fuzz.world import BOSS, NAMESPACES, NOBODY, SUPERUSER, World
from tests.server.credentials import token

_ANSWER_S: Final = 60.0
_DEPTH_MAX: Final = 4

KNOWN: Final[Mapping[str, Sequence[str]]] = {
    "tenant": sorted({each.partition("/")[0] for each in NAMESPACES}),
    "namespace": sorted({each.partition("/")[2] for each in NAMESPACES}),
    "topic": ("plain", "parted", "parted-partition-0", "parted-partition-1"),
    "subscription": ("s", "t"),
    "role": ("somebody", NOBODY, BOSS, SUPERUSER),
    "cluster": ("standalone",),
    "bundle": ("0x00000000_0xffffffff",),
    "mode": ("ALL", "PERSISTENT"),
    "backlogQuotaType": ("destination_storage", "message_age"),
    "initialPosition": ("earliest", "latest"),
}
"""Names of things that exist, by the parameters that name them; the others are made up."""

_ILL: Final = (
    *("..", ".", "%00", "a%2Fb", "%ff", "%", "+", "%252F", "x" * 2000, "%C3%A9", "a%20b", "-1", str(2**64), "%5C", "*"),
)
_KNOWN_PART: Final = 0.85
_NUMBERS: Final = (0, 1, 2, 7, -1, 60, 2**31 - 1, 2**31, 2**63 - 1, 2**64, 1e300, 0.5)


class HttpRequest(NamedTuple):
    """One request; ``target`` is the path with its query."""

    method: str
    target: str
    body: bytes | None

    def __str__(self) -> str:
        return f"{self.method} {self.target} {self.body!r}"


class Document:
    """The OpenAPI document, as a source of requests."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if method != "parameters"
        ]

    def __len__(self) -> int:
        return len(self._operations)

    def request(self, chance: random.Random, number: int) -> HttpRequest:
        """The operations in turn, with random names, parameters and bodies."""
        method, path, operation = self._operations[number % len(self._operations)]
        parts = [_part(chance, part) for part in path.split("/")]
        asked = [
            f"{each['name']}={_query_value(chance, each)}"
            for each in operation.get("parameters", ())
            if chance.random() < 0.6
        ]
        target = "/".join(parts) + ("?" + "&".join(asked) if asked else "")
        return HttpRequest(method, target, self._body(chance, operation))

    def _body(self, chance: random.Random, operation: dict[str, Any]) -> bytes | None:
        form = chance.random()
        if "requestBody" not in operation or form < 0.2:
            return None
        if form < 0.3:
            return chance.randbytes(chance.choice((1, 20)))
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        content = self._fitting(chance, schema, 0) if form < 0.8 else _any_json(chance, 0)
        return json.dumps(content).encode()

    def _fitting(self, chance: random.Random, schema: dict[str, Any], depth: int) -> object:
        """A value for ``schema``; bounds are not looked at."""
        if "$ref" in schema:
            return self._fitting(chance, self._schemas[schema["$ref"].rpartition("/")[2]], depth)
        if "anyOf" in schema:
            return self._fitting(chance, chance.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return chance.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                fields = schema.get("properties", {}).items()
                return {name: self._fitting(chance, each, depth + 1) for name, each in fields if chance.random() < 0.8}
            case "array":
                items = schema.get("items") or {}
                return [self._fitting(chance, items, depth + 1) for _ in range(chance.choice((0, 1, 3)))]
            case "string":
                return _text(chance)
            case "integer" | "number":
                return chance.choice(_NUMBERS)
            case "boolean":
                return chance.random() < 0.5
        return _any_json(chance, depth)


def _part(chance: random.Random, part: str) -> str:
    """A part of a path; subscriptions are plain enough not to be encoded twice."""
    if not part.startswith("{"):
        return part
    name = part.strip("{}")
    if chance.random() < _KNOWN_PART:
        return quote(chance.choice(KNOWN.get(name, ("0", "1", "7", "x"))), safe="")
    return chance.choice((*_ILL, quote(_text(chance) or "-", safe="")))


def _query_value(chance: random.Random, parameter: dict[str, Any]) -> str:
    known = KNOWN.get(parameter["name"], ("true", "false", "1", "0", "-1"))
    return quote(chance.choice(known) if chance.random() < _KNOWN_PART else chance.choice(_ILL), safe="%")


def _any_json(chance: random.Random, depth: int) -> object:
    plain = (None, True, chance.choice(_NUMBERS), _text(chance))
    if depth >= _DEPTH_MAX or chance.random() < 0.5:
        return chance.choice(plain)
    values = [_any_json(chance, depth + 1) for _ in range(chance.choice((0, 1, 3)))]
    return values if chance.random() < 0.5 else {_text(chance): each for each in values}


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(string.printable, k=chance.choice((0, 1, 5, 40))))


# -- sending


class Requests(NamedTuple):
    """The requests of one role; "" is a stranger. All of them follow from the seed."""

    document: Document
    seed: int
    role: str

    @property
    def client(self) -> str:
        """The role as a name in a report."""
        return f"role {self.role}" if self.role else "no credentials"

    @property
    def headers(self) -> dict[str, str]:
        """The credentials."""
        return {"Authorization": f"Bearer {token(self.role)}"} if self.role else {}

    def request(self, number: int) -> HttpRequest:
        """The request of this number."""
        return self.document.request(random.Random(f"{self.seed}/requests/{self.role}/{number}"), number)

    def shown(self, number: int) -> str:
        """The same as text."""
        return str(self.request(number))

    def attack(self, world: World, _inputs: Inputs, numbers: range, workers: int) -> list[str]:
        """Send those of ``numbers``; what went wrong."""
        told: list[str] = []
        headers = {"Content-Type": "application/json", **self.headers}

        def work(worker: int) -> None:
            link = http.client.HTTPConnection(urlsplit(world.target.http_url).netloc, timeout=_ANSWER_S)
            for number in numbers[worker::workers]:
                request = self.request(number)
                if wrong := _wrong(link, request, headers):
                    told.append(f"{self.client}, request {number}, {request}: {wrong}")
            link.close()

        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(work, range(workers)))
        return told


def _wrong(link: http.client.HTTPConnection, request: HttpRequest, headers: Mapping[str, str]) -> str:
    """What is wrong with the answer, or "". A refusal is JSON with a reason, as that of Pulsar."""
    try:
        link.request(request.method, request.target, request.body, dict(headers))
        answer = link.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        link.close()
        return f"no answer, but {error!r}"
    if answer.status >= 500:
        return f"{answer.status} {content[:200]!r}"
    if answer.status >= 400 and not _has_reason(content):
        return f"{answer.status} without a reason: {content[:200]!r}"
    return ""


def _has_reason(content: bytes) -> bool:
    try:
        return bool(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError):
        return False
