# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document has every path of the admin REST, with everything that its handler reads from the query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker_core.server.admin import app
from broker_core.server.admin.app import all_routes
from scripts.openapi import openapi, query_parameters

_READS = re.compile(r"""(?:\.flag\(|query_number\(|query_params\.get\()"(\w+)\"""")


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in openapi()["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                yield path, method.upper(), operation


def test_every_route_is_in_the_document() -> None:
    """Each path with each of its methods, once, under an id of its own."""
    routes = {
        (route.path_format, method)
        for route in all_routes()
        for method in (route.methods or set()) - {"HEAD"}
        if not route.path.endswith("/")
    }
    assert {(path, method) for path, method, _operation in _operations()} == routes
    assert max(Counter(operation["operationId"] for *_, operation in _operations()).values()) == 1


def test_every_query_parameter_is_in_the_document() -> None:
    """What is found for each handler is together what the sources of the admin REST read."""
    sources = Path(app.__file__).parent.glob("*.py")
    read = {name for source in sources for name in _READS.findall(source.read_text())}
    assert {name for route in all_routes() for name, _kind in query_parameters(route)} == read


def test_every_operation_says_who_may_call_it() -> None:
    """The right of the table; and nothing that needs none asks for credentials."""
    for path, _method, operation in _operations():
        assert operation["x-right"], path
        assert (operation["x-right"] == "nothing") == (operation.get("security") == []), path


def test_every_reference_leads_somewhere() -> None:
    """Parameters, answers and schemas are all there."""
    document = openapi()
    for reference in set(re.findall(r"'\$ref': '#/([^']+)'", str(document))):
        found: Any = document
        for part in reference.split("/"):
            found = found[part]
        assert found
