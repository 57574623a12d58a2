# SPDX-License-Identifier: Apache-2.0
"""ValueDecoder: values of messages as one Arrow column of a reader's schema, whatever version each was written with."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.values.decoding import Decoded, Flaw
from broker_core.values.key_values import KeyValues
from broker_core.values.readings import Form, Reading, form_of, merged, only
from broker_core.wire.batch import columns as cols

_OWN: Final = 0
"""The number of the reader's own schema among those of writers."""
_UNKNOWN: Final = -1


class ValueDecoder:
    """Values of one topic, each written by some version of its schema, as a column of type ``arrow``.

    Records become structs, KEY_VALUE a struct of ``key`` and ``value``, other values plain columns. All versions of
    Avro in a batch are read in one walk.
    """

    def __init__(self, reader: SchemaInfo, *, recursive_depth: int = 0) -> None:
        """InvalidSchemaError, RecursiveSchemaError, TooManyColumnsError."""
        self._form: Form = (
            KeyValues(reader, lambda part: ValueDecoder(part, recursive_depth=recursive_depth))
            if reader.type is SchemaType.KEY_VALUE
            else form_of(reader, recursive_depth)
        )
        self._readings: list[Reading] = [self._form.reading(_OWN, reader)]
        self._numbers: dict[int, int] = {}

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        return self._form.arrow

    def add(self, version: int, writer: SchemaInfo) -> None:
        """Tell what a version is. Values of one that the reader cannot read have a flaw each."""
        if version not in self._numbers:
            self._readings.append(self._form.reading(len(self._readings), writer))
            self._numbers[version] = len(self._readings) - 1

    def knows(self, version: int) -> bool:
        """Whether the version was added."""
        return version in self._numbers

    def decode(self, values: pa.Array, versions: pa.Array, keys: pa.Array | None = None) -> Decoded:
        """Read ``values``, binary, by their ``versions``, int64; a null version is the reader's own schema.

        ``keys``: binary, of the messages, for KEY_VALUE schemas that have them there. A null value is null without a
        flaw; a row with a flaw is null.
        """
        numbers = self._numbered(versions)
        found = np.unique(numbers).tolist()
        readings: list[Reading] = list(dict.fromkeys(self._readings[each] for each in found if each != _UNKNOWN))
        if len(readings) == 1 and _UNKNOWN not in found:
            return readings[0].decode(values, numbers, keys)
        parts = []
        for reading in readings:
            mine = [number for number in found if number != _UNKNOWN and self._readings[number] == reading]
            rows = np.isin(numbers, mine)
            parts.append((reading.decode(only(values, rows), numbers, keys), rows))
        decoded = merged(self.arrow, len(values), parts)
        given = cols.presence(values).view(np.bool_)
        if keys is not None and isinstance(self._form, KeyValues):
            given = given | cols.presence(keys).view(np.bool_)
        unknown = np.flatnonzero((numbers == _UNKNOWN) & given).tolist()
        flaws = [Flaw(row, f"schema version {versions[row].as_py()} is not known") for row in unknown]
        return Decoded(decoded.rows, sorted([*decoded.flaws, *flaws]))

    def _numbered(self, versions: pa.Array) -> NDArray[np.int64]:
        """Of each row the number of its writer's schema."""
        given, present = cols.values_of(versions), cols.presence(versions).view(np.bool_)
        if not present.any():
            return np.full(len(given), _OWN, np.int64)
        if present.all() and (given == given[0]).all():
            return np.full(len(given), self._numbers.get(int(given[0]), _UNKNOWN), np.int64)
        distinct, which = np.unique(given, return_inverse=True)
        numbers = np.array([self._numbers.get(each, _UNKNOWN) for each in distinct.tolist()], np.int64)[which]
        numbers[~present] = _OWN
        return numbers
