# SPDX-License-Identifier: Apache-2.0
"""Published holes of Apache Pulsar in services that this broker has not, or that no attack shows from outside.

Modules and services that would bring such a hole along are not there; whoever adds one meets its number here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from broker_core.client import AuthenticationToken, Client, DeadLetterPolicy
from tests.client.helpers import eventually
from tests.server.credentials import token
from tests.server.rights_model import SUPERUSER
from tests.server.rights_world import Secured, Who, furnish, secured
from tests.source_trees import parsed

CORE: Final = Path(__file__).resolve().parents[2] / "broker_core"
OF_THE_BROKER: Final = ("base", "wire", "storage", "broker", "server")
LOADERS: Final = {
    "broker_core/base/lazy_names.py": "names of our own packages, which are written there",
    "broker_core/wire/core/mode.py": "the compiled core, or its sources",
}
SECRET_WORDS: Final = ("token", "password", "secret", "signature", "digest", "hash")
"""Parts of the names of values that must not be compared byte by byte."""


def trees() -> Iterator[tuple[str, ast.AST]]:
    """The modules of the broker's process, by their paths."""
    for layer in OF_THE_BROKER:
        for path in sorted((CORE / layer).rglob("*.py")):
            if "proto" not in path.parts:
                yield str(path.relative_to(CORE.parent)), parsed(path)


def imported(tree: ast.AST) -> set[str]:
    """The modules that a tree imports, with the packages that they are in."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{each.name}" for each in node.names)})
    return {".".join(name.split(".")[: end + 1]) for name in found for end in range(name.count(".") + 1)}


@pytest.mark.parametrize(
    ("number", "modules"),
    [
        ("2024-27135", {"pickle", "marshal", "shelve", "importlib", "runpy", "code", "yaml", "subprocess"}),
        ("2024-27317", {"zipfile", "tarfile", "shutil"}),
        ("2024-27894", {"urllib.request", "http.client", "httpx", "requests", "ftplib"}),
    ],
)
def test_the_broker_loads_unpacks_and_fetches_nothing(number: str, modules: set[str]) -> None:
    """2024-27135: code from what a client sends. 2024-27317: archives. 2024-27894: what a URL of a client names."""
    found = {path: imported(tree) & modules for path, tree in trees()}
    assert {path: names for path, names in found.items() if names and path not in LOADERS} == {}, number


def test_cve_2024_27135_no_text_is_run() -> None:
    """By a built-in function."""
    runs = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile", "__import__"}
    ]  # fmt: skip
    assert runs == []


def test_cve_2023_51437_secrets_are_compared_in_constant_time() -> None:
    """Nothing that is called a secret is compared by ``==``, which ends at the first byte that differs."""
    compared = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                sides = [node.left, *node.comparators]
                names = {ast.unparse(each).rpartition(".")[2].lower().lstrip("_") for each in sides}
                if any(word in name.split("_") for name in names for word in SECRET_WORDS):
                    compared.append(f"{path}:{node.lineno} {ast.unparse(node)}")
    assert [each for each in compared if "server/security" in each or "base/" in each] == []


@pytest.fixture(scope="module")
def world() -> Iterator[Secured]:
    with secured() as world:
        yield world


@pytest.mark.parametrize(
    "path",
    [
        *("/admin/v3/functions/public/default", "/admin/v3/functions/public/default/f/trigger"),
        *("/admin/v3/sinks/public/default", "/admin/v3/sources/public/default", "/admin/v3/sinks/builtinsinks"),
        *("/admin/v3/sources/builtinsources", "/admin/functions/connectors", "/admin/v2/functions/connectors"),
        *("/admin/v3/packages/function/acme/ns/f/1", "/admin/v3/packages/sink/acme/ns", "/admin/v2/worker/cluster"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_there_are_no_functions_connectors_and_packages(world: Secured, method: str, path: str) -> None:
    """2026-105930, 2026-105935, 2026-105936: not even for the superuser, and nobody else learns that."""
    for role, statuses in ((SUPERUSER, {404}), ("nobody", {401, 403, 404})):
        http = world.http(Who(role))
        assert http.ask(method, path).status in statuses, role
        http.close()


def test_cve_2026_105927_dead_letters_need_the_right_of_the_client(
    world: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may consume and not produce gets no message into another topic by giving one up; it stays where it is."""
    furnish(world, "acme/letters")
    topic = "persistent://acme/letters/plain"
    url = world.server.service_url
    with Client(url, authentication=AuthenticationToken(token(SUPERUSER))) as root:
        root.create_producer(topic).send("poison")
        policy = DeadLetterPolicy(max_redeliver_count=1, dead_letter_topic="persistent://acme/letters/kept")
        with Client(url, authentication=AuthenticationToken(token("cons-ns"))) as client:
            consumer = client.subscribe(
                topic, "open", type="shared", dead_letter_policy=policy, negative_ack_redelivery_delay_s=0.1
            )
            for _ in range(2):
                consumer.negative_acknowledge(consumer.receive(60))
            eventually(lambda: "consumer dead letter failed" in caplog.text, "the letter is refused")
        letters = root.subscribe("persistent://acme/letters/kept", "look", initial_position="earliest")
        root.create_producer("persistent://acme/letters/kept").send("the first one")
        assert letters.receive(60).value == b"the first one"
        again = root.subscribe(topic, "open", type="shared")
        assert again.receive(60).value == b"poison"
