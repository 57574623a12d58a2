# SPDX-License-Identifier: Apache-2.0
"""Lines of input as values of a schema, for ``produce --schema``: which schema it is, checks, payloads.

Input that can be read twice, such as a file, is checked as a whole before anything of it is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from broker_core.base.errors import UsageError
from broker_core.base.names import TopicName
from broker_core.cli.schema_access import no_schema
from broker_core.cli.schema_files import schema_in_file, type_named
from broker_core.cli.typed_values import Encode, Payload, encoder_of, parsed_line
from broker_core.client.schemas.misfit import Misfit
from broker_core.schemas.info import SchemaInfo

if TYPE_CHECKING:
    from broker_core.cli.message_forms import Outgoing
    from broker_core.client import Client

OF_TOPIC: Final = "topic"


def schema_to_use(client: Client, topic: str, which: str, kind: str | None) -> SchemaInfo:
    """The schema that ``--schema`` names: that of the topic, a type without definition, or that of a file."""
    name = TopicName.parse(topic)
    latest = client.get_schema(topic)
    if which == OF_TOPIC:
        if kind is not None:
            raise UsageError("--schema-type is for a file", hint="leave it out with --schema topic")
        if latest is None:
            raise no_schema(name)
        return latest.info
    primitive = type_named(which)
    if primitive is not None and primitive.is_primitive:
        return SchemaInfo(primitive)
    return schema_in_file(which, type_named(kind), None if latest is None else latest.info)


class LineSchema:
    """A schema by which lines are encoded."""

    def __init__(self, info: SchemaInfo) -> None:
        """InvalidSchemaError; UsageError for a type whose values are not known here."""
        self.info = info
        self._encode = encoder_of(info)

    def encoder(self, where: str) -> Encode:
        """A function that makes the payload of a value; UsageError names ``where`` it stands."""

        def encode(value: Any) -> Payload:
            try:
                return self._encode(value)
            except Misfit as misfit:
                raise _misfitting(where, misfit) from misfit

        return encode

    def encoded(self, messages: Iterator[Outgoing], what: str) -> Iterator[Outgoing]:
        """Messages whose values are lines, with payloads instead. ``what``: a line, or a value of the command line."""
        for number, message in enumerate(messages, 1):
            where = f"{what} {number}"
            assert isinstance(message.value, bytes)
            try:
                value = parsed_line(self.info, message.value)
            except Misfit as misfit:
                raise _misfitting(where, misfit) from misfit
            payload = self.encoder(where)(value)
            key = payload.key if payload.has_key else message.key
            yield message._replace(value=payload.value, key=key)


def checked_first(messages: Callable[[], Iterator[Outgoing]], *, are_given: bool) -> Iterator[Outgoing]:
    """The messages of the input, after all of them were checked if it can be read twice: where the command line has
    them (``are_given``), or stdin is a file."""
    stdin = sys.stdin.buffer
    begin = stdin.tell() if not are_given and stdin.seekable() else None
    if not are_given and begin is None:
        return messages()
    try:
        for _ in messages():
            pass
    except UsageError as error:
        raise UsageError(error.message, hint="nothing was sent") from error
    if begin is not None:
        stdin.seek(begin)
    return messages()


def _misfitting(where: str, misfit: Misfit) -> UsageError:
    return UsageError(f"{where} of the input is no value of the schema: {misfit}", hint="see: pulsarish schema show")
