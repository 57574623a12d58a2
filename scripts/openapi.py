# SPDX-License-Identifier: Apache-2.0
"""The document ``docs/openapi.json``: every path of the admin REST in OpenAPI 3.1, made from the routes.

Paths, methods, rights and refusals are those of the table of routes; query parameters those that a handler reads, and
bodies of policies those of the table of policies. Other bodies are any JSON.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from broker_core import __version__
from broker_core.base.policies import POLICIES, Policy
from broker_core.server.admin.app import all_routes
from broker_core.server.admin.kept import KEPT, Kept
from broker_core.server.admin.requests import Route
from broker_core.server.security.rights import Need, Right

_NUMBERS: Final = frozenset(
    {"ledger", "entry", "seconds", "timestamp", "count", "place", "most", "least", "coordinator", "millis"}
)
"""Parts of paths that are numbers; all others are names."""

_QUERY_TYPES: Final = {"flag": "boolean", "query_number": "integer", "get": "string"}
"""Types of query parameters by the call that reads them."""

_WRITING: Final = ("PUT", "POST", "DELETE")
_SCHEMAS: Final = "#/components/schemas/{name}"
_REFUSED: Final = {"$ref": "#/components/responses/Refused"}
_ADMIN: Final = "broker_core.server.admin"


def openapi_json() -> str:
    """The document as text."""
    return json.dumps(openapi(), indent=1, ensure_ascii=False) + "\n"


def openapi() -> dict[str, Any]:
    """The document."""
    policies: list[Policy | Kept] = [*POLICIES, *KEPT]
    kinds = {name: policy.kind for policy in policies for name in (policy.namespace, policy.topic) if name}
    bodies, components = msgspec.json.schema_components(list(kinds.values()), ref_template=_SCHEMAS)
    of_policies = dict(zip(kinds, bodies, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in all_routes():
        if route.path.endswith("/"):
            continue  # the same path, spelled a second way
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operations = paths.setdefault(route.path_format, {"parameters": list(_path_parameters(route))})
            operations.setdefault(method.lower(), _operation(route, method, of_policies))
    parameters = {name: _path_parameter(name) for route in all_routes() for name in route.param_convertors}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pulsarish admin REST",
            "version": __version__,
            "description": "Apache Pulsar's paths, JSON and status codes. Made from the code by `make docs`.",
        },
        "security": [{"token": []}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, **components},
            "parameters": parameters,
            "responses": {"Refused": _refusal("refused, with the reason")},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _path_parameters(route: Route) -> Iterator[dict[str, str]]:
    for name in route.param_convertors:
        yield {"$ref": f"#/components/parameters/{name}"}


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0} if name in _NUMBERS else {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _operation(route: Route, method: str, of_policies: dict[str, Any]) -> dict[str, Any]:
    need = route.need
    operation: dict[str, Any] = {"operationId": _operation_id(route, method)}
    if told := " ".join((inspect.getdoc(route.endpoint) or "").split()):
        operation["summary"] = told
    if need.right is Right.NONE:
        operation["security"] = []
    operation["x-right"] = f"{need.right.value}{' on ' if need.about.value else ''}{need.about.value}"
    if parameters := [_query_parameter(*each) for each in sorted(query_parameters(route))]:
        operation["parameters"] = parameters
    if method in _WRITING:
        schema = of_policies.get(route.path.rpartition("/")[2], {}) if method != "DELETE" else {}
        operation["requestBody"] = {"required": False, "content": {"application/json": {"schema": schema}}}
    operation["responses"] = _responses(route, need)
    return operation


def _operation_id(route: Route, method: str) -> str:
    path = route.path_format.removeprefix("/admin/v2").replace("{", "of_")
    return method.lower() + re.sub(r"[^A-Za-z0-9]+", "_", path).rstrip("_")


def _query_parameter(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind}}


_ERROR: Final = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}


def _refusal(text: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _SCHEMAS.format(name="Error")}}}
    return {"description": text, "content": content}


def _responses(route: Route, need: Need) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if not _answers_with_nothing(route):
        responses["200"] = {"description": "the answer"}
    responses["204"] = {"description": "done, or nothing is set"}
    if need.refusal:
        text = f"the role lacks the right {need.operation}".rstrip()
        responses[str(need.status)] = _refusal(text)
    responses["4XX"] = _REFUSED
    return responses


def _answers_with_nothing(route: Route) -> bool:
    return inspect.signature(route.endpoint).return_annotation in (None, "None")


# -- query parameters


def query_parameters(route: Route) -> set[tuple[str, str]]:
    """Names and types of the query parameters that the handler, and the functions of the admin REST it calls, read."""
    return set(_read_by(route.endpoint, set()))


def _read_by(function: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    if function in seen:
        return
    seen.add(function)
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            yield from _read_in(node, node.func)
        elif isinstance(node.func, ast.Name):
            called = function.__globals__.get(node.func.id)
            if inspect.isfunction(called) and called.__module__.startswith(_ADMIN):
                yield from _read_by(called, seen)


def _read_in(call: ast.Call, called: ast.Attribute) -> Iterator[tuple[str, str]]:
    """The query parameter that ``call`` reads, if it reads one."""
    kind = _QUERY_TYPES.get(called.attr)
    if kind is None or not call.args or not isinstance(call.args[0], ast.Constant):
        return
    if called.attr == "get" and "query_params" not in ast.unparse(called.value):
        return
    yield str(call.args[0].value), kind
