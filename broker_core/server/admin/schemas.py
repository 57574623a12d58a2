# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics: read, add, delete, and ask beforehand whether one would be taken.

A topic need not exist, but its namespace must: the schema waits for it. The data of a schema is text; that of KEY_VALUE
is an object with the two definitions. Source: Pulsar docs, "Admin API - schemas"; semantics 10.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import msgspec

from broker_core.base.errors import IncompatibleSchemaError, PulsarishError
from broker_core.base.names import TopicName
from broker_core.schemas.compatibility import Entry
from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.schemas.key_value import KeyValueError, from_json, to_json
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, json_answer
from broker_core.server.admin.requests import AdminRequest, Handler, Route
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Need, Right

Json = dict[str, Any]

_INVALID: Final = 422
_NO_SCHEMA: Final = -1


class _SchemaBody(msgspec.Struct, frozen=True):
    """A schema as clients send it."""

    type: str = ""
    schema: str = ""
    properties: dict[str, str] = {}


def _name(request: AdminRequest) -> TopicName:
    name = request.topic_name
    request.broker.namespaces.require(name.namespace_name)
    return name


async def _info(request: AdminRequest) -> SchemaInfo:
    """The schema in the body; a refusal if it is none."""
    body: _SchemaBody | None = await request.body_as(_SchemaBody | None)
    if body is None:
        raise BadRequestError("the request has no body; it needs type, schema and properties")
    if body.type not in SchemaType.__members__:
        raise RefusedError(_INVALID, f"there is no schema type {body.type[:80]!r}")
    kind, data = SchemaType[body.type], body.schema.encode()
    try:
        return SchemaInfo(kind, from_json(data) if kind is SchemaType.KEY_VALUE else data, body.properties)
    except KeyValueError as error:
        raise RefusedError(_INVALID, f"Invalid schema definition data for KEY_VALUE schema: {error.message}") from error


def _answer(entry: Entry, info: SchemaInfo) -> Json:
    data = to_json(info.data) if info.type is SchemaType.KEY_VALUE else info.data
    return {
        "version": entry.version,
        "type": info.type.name,
        "timestamp": entry.added_ms,
        "data": data.decode(errors="replace"),
        "properties": dict(info.properties),
    }


async def get_schema(request: AdminRequest) -> object:
    """The schema of a topic."""
    entry = request.broker.schemas.latest(_name(request))
    if entry is None or entry.info is None:
        raise MissingError(f"Schema not found: {request.topic_name} has none")
    return _answer(entry, entry.info)


async def get_version(request: AdminRequest) -> object:
    """A version of it, unless the schema was deleted since: then only clients that have messages get that."""
    name, version = _name(request), request.number("version")
    entry = request.broker.schemas.version(name, version, live=True)
    if entry is None or entry.info is None:
        raise MissingError(f"Schema not found: {name} has no version {version}")
    return _answer(entry, entry.info)


async def get_versions(request: AdminRequest) -> object:
    """All versions that count, oldest first."""
    name = _name(request)

    def listed() -> Generator[None, None, list[msgspec.Raw]]:
        found = []
        for entries in request.broker.schemas.live(name):
            answers = [_answer(each, each.info) for each in entries if each.info is not None]
            found += [msgspec.Raw(msgspec.json.encode(each)) for each in answers]
            yield
        return found

    return {"getSchemaResponses": await request.in_turns(listed())}


async def get_metadata(request: AdminRequest) -> object:
    """The numbers of the versions that count. Positions in a store, which Pulsar adds, do not exist here."""
    name = _name(request)

    def numbered() -> Generator[None, None, list[Json]]:
        found: list[Json] = []
        for entries in request.broker.schemas.live(name):
            found += [{"version": each.version} for each in entries]
            yield
        return found

    versions = await request.in_turns(numbered())
    if not versions:
        raise MissingError(f"Schema not found: {name} has none")
    return {"info": versions[-1], "index": versions}


async def post_schema(request: AdminRequest) -> object:
    """Add a schema, or find the version that it has: 409 if it is not compatible, 422 if it is none."""
    name, info = _name(request), await _info(request)
    schemas = request.broker.schemas
    admission = await request.node.schema_threads.outcome(schemas.posted(name, info))
    _name(request)  # the namespace may be gone
    return {"version": {"version": schemas.admit(admission, _role(request))}}


def _role(request: AdminRequest) -> str:
    """The role that adds or deletes a schema; empty where nobody asks for roles."""
    identity = request.scope.get("identity")
    return "" if identity is None else identity.role


async def delete_schema(request: AdminRequest) -> object:
    """Delete the schema: `?force=true` all its versions, whose numbers begin anew then, and messages that were written
    with them cannot be read any more, or are read by later ones of their numbers. Otherwise they are kept for these,
    and the deletion takes a number itself."""
    name, schemas = _name(request), request.broker.schemas
    if request.flag("force"):
        schemas.forget(name)
        return {"version": _NO_SCHEMA}
    version = schemas.delete(name, _role(request))
    return {"version": _NO_SCHEMA if version is None else version}


async def check_compatibility(request: AdminRequest) -> object:
    """Whether a schema would be taken, and the strategy that says so."""
    name, info = _name(request), await _info(request)
    schemas = request.broker.schemas
    is_compatible = True
    try:
        await request.node.schema_threads.outcome(schemas.check(name, info))
    except InvalidSchemaError:
        raise
    except IncompatibleSchemaError:
        is_compatible = False
    strategy = schemas.strategy(name).value
    return json_answer({"compatibility": is_compatible, "schemaCompatibilityStrategy": strategy}, 202)


async def find_version(request: AdminRequest) -> object:
    """The version that a schema has; -1 if the topic has it not."""
    name, info = _name(request), await _info(request)
    version = await request.node.schema_threads.outcome(request.broker.schemas.version_of(name, info))
    return {"version": _NO_SCHEMA if version is None else version}


_PATH: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_READ: Final = needs.of_topic("GET_METADATA", Right.LOOKUP)
_STATUSES: Final[dict[type[PulsarishError], int]] = {InvalidSchemaError: _INVALID, IncompatibleSchemaError: 409}


def _route(path: str, handler: Handler, need: Need = _READ, method: str = "GET") -> Route:
    return Route(f"{_PATH}/{path}", handler, need, methods=[method], statuses=_STATUSES, loads=False)


ROUTES: Final = [
    _route("schema", get_schema),
    _route("schema", post_schema, needs.of_topic("PRODUCE", Right.PRODUCE), "POST"),
    _route("schema", delete_schema, needs.administer(About.TOPIC), "DELETE"),
    _route("schema/{version}", get_version),
    _route("schemas", get_versions),
    _route("metadata", get_metadata),
    _route("compatibility", check_compatibility, needs.administer(About.TOPIC), "POST"),
    _route("version", find_version, method="POST"),
]
