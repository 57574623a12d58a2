# SPDX-License-Identifier: Apache-2.0
"""Definitions that were parsed lately: a transitive strategy asks for the same old versions again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from broker_core.schemas.definition import Definition, definition_of
from broker_core.schemas.info import SchemaInfo, SchemaType

_TEXT_BYTES_MAX: Final = 1024 * 1024
"""Bytes of the schemas whose definitions are kept. A definition takes some fifteen times as much."""

_OVERHEAD_BYTES: Final = 64
"""Bytes that a schema counts beside its text, so that those without any are bounded too."""


class DefinitionCache:
    """The definitions of schemas of which each was asked for lately, within a bound. For one thread at a time."""

    def __init__(self, text_bytes_max: int = _TEXT_BYTES_MAX) -> None:
        self._most = text_bytes_max
        self._definitions: OrderedDict[Hashable, Definition] = OrderedDict()
        self._text_bytes = 0

    def definition_of(self, info: SchemaInfo) -> Definition:
        """As the function of this name; InvalidSchemaError."""
        properties = tuple(sorted(info.properties.items())) if info.type is SchemaType.KEY_VALUE else ()
        key = (info.type, info.data, properties)
        found = self._definitions.get(key)
        if found is None:
            found = definition_of(info)
            self._keep(key, found)
        else:
            self._definitions.move_to_end(key)
        return found

    def _keep(self, key: Hashable, definition: Definition) -> None:
        size = _OVERHEAD_BYTES + len(definition.data)
        if size > self._most // 8:  # one large schema would drive out very many
            return
        self._definitions[key] = definition
        self._text_bytes += size
        while self._text_bytes > self._most:
            _, oldest = self._definitions.popitem(last=False)
            self._text_bytes -= _OVERHEAD_BYTES + len(oldest.data)
