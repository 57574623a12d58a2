# SPDX-License-Identifier: Apache-2.0
"""Records declared by their fields, in the words of Pulsar's own Python client.

    class Order(Record):
        number = Long(required=True)
        city = String(default="Ghent", required_default=True)
        tags = Array(String())

A field that is not ``required`` may be null, and has a default in the definition only with ``required_default``: an
added field without it is incompatible with older data, so that dataclasses (``dataclass_records``) are the better
declarations. Definitions equal those of Pulsar's client, so that a topic has one version for both. Source: Pulsar docs,
"Schema".
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, overload

from broker_core.base.errors import UsageError
from broker_core.client.schemas.logical_types import json_number
from broker_core.client.schemas.misfit import wanted

V = TypeVar("V")
R = TypeVar("R", bound="Record")


class Field(Generic[V]):
    """A field of a record. ``required``: never null. ``default``: its value where none is given, which readers of older
    data know only with ``required_default``."""

    avro: ClassVar[str] = ""
    kinds: ClassVar[tuple[type, ...]] = ()

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:
        self.name = ""
        self.required = required
        self.required_default = required_default
        self.default: V | None = None if default is None else self.checked(default)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, record: None, owner: type) -> Field[V]: ...
    @overload
    def __get__(self, record: Record, owner: type) -> V | None: ...
    def __get__(self, record: Record | None, owner: type) -> Field[V] | V | None:
        return self if record is None else record.__dict__.get(self.name)

    def __set__(self, record: Record, value: Any) -> None:
        record.__dict__[self.name] = self.initial() if value is None and not self.required else self.checked(value)

    def initial(self) -> V | None:
        """The value of a field that is not given."""
        return self.default

    def checked(self, value: Any) -> V:
        """``value`` as the record keeps it; TypeError if it is of another type."""
        if not isinstance(value, self.kinds) or (isinstance(value, bool) and bool not in self.kinds):
            raise self.refused(value)
        return cast("V", value)

    def refused(self, value: Any) -> TypeError:
        """The error for a value of another type."""
        wanted = " or ".join(each.__name__ for each in self.kinds)
        return TypeError(f"field {self.name!r} takes {wanted}, and not {type(value).__name__}")

    def definition(self, defined: set[str]) -> Any:
        """The type in Avro's definition. ``defined``: names that came before, which stand for their types."""
        return self.avro

    def declared(self, defined: set[str]) -> dict[str, Any]:
        """The field in the definition of its record."""
        kind = self.definition(defined)
        given = {"default": json_number(self.plain(self.initial()))} if self.required_default else {}
        return {"name": self.name, **given, "type": kind if self.required else ["null", kind]}

    def plain(self, value: Any) -> Any:
        """``value`` as Avro has it."""
        return value

    def made(self, value: Any) -> Any:
        """The value of this field, of one that Avro has."""
        return value

    def enums(self) -> dict[str, type[enum.Enum]]:
        """The enums that the field is made of, by their names."""
        return {}


class Null(Field[None]):
    """Always null."""

    avro, kinds = "null", (type(None),)

    def declared(self, defined: set[str]) -> dict[str, Any]:
        """The field without the union with null that others have: null is in that already."""
        return {**super().declared(defined), "type": self.avro}


class Boolean(Field[bool]):
    """True or false; false where it is not given."""

    avro, kinds = "boolean", (bool,)

    def initial(self) -> bool | None:
        return bool(self.default)


class Integer(Field[int]):
    """A whole number of 32 bits."""

    avro, kinds = "int", (int,)


class Long(Field[int]):
    """A whole number of 64 bits."""

    avro, kinds = "long", (int,)


class Float(Field[float]):
    """A number of 32 bits with a point."""

    avro, kinds = "float", (float, int)


class Double(Field[float]):
    """A number of 64 bits with a point."""

    avro, kinds = "double", (float, int)


class Bytes(Field[bytes]):
    """Bytes; a text becomes its UTF-8."""

    avro, kinds = "bytes", (bytes, str)

    def checked(self, value: Any) -> bytes:
        checked: bytes | str = super().checked(value)
        return checked.encode() if isinstance(checked, str) else checked

    def declared(self, defined: set[str]) -> dict[str, Any]:
        declared = super().declared(defined)
        if isinstance(declared.get("default"), bytes):
            declared["default"] = declared["default"].decode("latin-1")
        return declared


class String(Field[str]):
    """A text; bytes are taken for its UTF-8."""

    avro, kinds = "string", (str, bytes)

    def checked(self, value: Any) -> str:
        checked: bytes | str = super().checked(value)
        return checked.decode() if isinstance(checked, bytes) else checked


E = TypeVar("E", bound=enum.Enum)


class CustomEnum(Field[E]):
    """A member of an enum, which may be given by its name or its number."""

    def __init__(
        self, enum_type: type[E], default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.enum_type = enum_type
        super().__init__(default, required, required_default)

    def checked(self, value: Any) -> E:
        if isinstance(value, self.enum_type):
            return value
        if isinstance(value, str) and value in self.enum_type.__members__:
            return self.enum_type[value]
        try:
            return self.enum_type(value)
        except ValueError:
            raise TypeError(f"field {self.name!r} takes {self.enum_type.__name__}, and not {value!r}") from None

    def definition(self, defined: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in defined:
            return name
        defined.add(name)
        return {"type": "enum", "name": name, "symbols": [each.name for each in self.enum_type]}

    def enums(self) -> dict[str, type[enum.Enum]]:
        return {self.enum_type.__name__: self.enum_type}

    def plain(self, value: Any) -> Any:
        return None if value is None else value.name

    def made(self, value: Any) -> Any:
        return None if value is None else self.checked(value)


class Array(Field[list[V]]):
    """A list of items, which are never null."""

    kinds = (list,)

    def __init__(
        self, array_type: type[Record | enum.Enum] | Field[V] | Record,
        default: Any = None, required: bool = False, required_default: bool = False,
    ) -> None:  # fmt: skip
        self.array_type = _field_of(array_type)
        super().__init__(default, required, required_default)

    def checked(self, value: Any) -> list[V]:
        self.array_type.name = self.name
        return [self.array_type.checked(each) for each in super().checked(value)]

    def definition(self, defined: set[str]) -> Any:
        return {"type": "array", "items": self.array_type.definition(defined)}

    def enums(self) -> dict[str, type[enum.Enum]]:
        return self.array_type.enums()

    def plain(self, value: Any) -> Any:
        return None if value is None else [self.array_type.plain(each) for each in value]

    def made(self, value: Any) -> Any:
        return None if value is None else [self.array_type.made(each) for each in value]


class Map(Field[dict[str, V]]):
    """Values by keys that are texts; no value is null."""

    kinds = (dict,)

    def __init__(
        self, value_type: type[Record | enum.Enum] | Field[V] | Record,
        default: Any = None, required: bool = False, required_default: bool = False,
    ) -> None:  # fmt: skip
        self.value_type = _field_of(value_type)
        super().__init__(default, required, required_default)

    def checked(self, value: Any) -> dict[str, V]:
        self.value_type.name = self.name
        for key in super().checked(value):
            if not isinstance(key, str):
                raise TypeError(f"field {self.name!r} takes keys that are texts, and not {key!r}")
        return {key: self.value_type.checked(each) for key, each in value.items()}

    def definition(self, defined: set[str]) -> Any:
        return {"type": "map", "values": self.value_type.definition(defined)}

    def enums(self) -> dict[str, type[enum.Enum]]:
        return self.value_type.enums()

    def plain(self, value: Any) -> Any:
        return None if value is None else {key: self.value_type.plain(each) for key, each in value.items()}

    def made(self, value: Any) -> Any:
        return None if value is None else {key: self.value_type.made(each) for key, each in value.items()}


class _Nested(Field[R]):
    """A record within a record."""

    def __init__(self, record: type[R], default: Any, required: bool, required_default: bool) -> None:
        self.record = record
        super().__init__(default, required, required_default)

    def checked(self, value: Any) -> R:
        if isinstance(value, self.record):
            return value
        if isinstance(value, dict):
            return self.record(**value)
        raise TypeError(f"field {self.name!r} takes {self.record.__name__}, and not {type(value).__name__}")

    def definition(self, defined: set[str]) -> Any:
        return _definition(self.record, defined)

    def enums(self) -> dict[str, type[enum.Enum]]:
        return record_enums(self.record)

    def plain(self, value: Any) -> Any:
        return None if value is None else plain_record(self.record, value)

    def made(self, value: Any) -> Any:
        return None if value is None else made_record(self.record, value)


_OPTIONS: Final = ("default", "required", "required_default")


class Record:
    """The base of records. Class attributes: ``_avro_namespace`` and ``_avro_name`` of the definition, which else has
    the name of the class, and ``_sorted_fields`` for fields in the order of their names.

    Fields are given by keyword. As a field of another record it is made with the arguments of a field:
    ``address = Address(required=True)``, or named by its class.
    """

    _avro_namespace: ClassVar[str | None] = None
    _avro_name: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[Mapping[str, Field[Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fields = dict(cls._fields)
        for name, declared in list(vars(cls).items()):
            if name.startswith("_"):
                continue
            field = _declared_field(declared)
            if field is not None:
                if field is not declared:
                    setattr(cls, name, field)
                    field.__set_name__(cls, name)
                fields[name] = field
        cls._fields = fields

    def __init__(self, **values: Any) -> None:
        own = self._fields
        self.__dict__["_options"] = {name: values.pop(name) for name in _OPTIONS if name in values and name not in own}
        for name, field in own.items():
            if name in values:
                setattr(self, name, values.pop(name))
            else:
                self.__dict__[name] = field.initial()
        if values:
            raise AttributeError(f"{type(self).__name__} has no field {min(values)!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self.__dict__[name]) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """The definition, as Avro has it."""
        return record_definition(cls)


# Not methods: they would take these names from fields.


def record_definition(cls: type[Record]) -> dict[str, Any]:
    """The definition of a class, as Avro has it."""
    definition: dict[str, Any] = _definition(cls, set())
    return definition


def _definition(cls: type[Record], defined: set[str]) -> Any:
    """The definition, or the name of one that came before."""
    name = cls._avro_name or cls.__name__
    full = f"{cls._avro_namespace}.{name}" if cls._avro_namespace else name
    if full in defined:
        return full
    defined.add(full)
    space = {"namespace": cls._avro_namespace} if cls._avro_namespace is not None else {}
    fields = sorted(cls._fields) if cls._sorted_fields else cls._fields
    return {
        "type": "record",
        "name": name,
        **space,
        "fields": [cls._fields[each].declared(defined) for each in fields],
    }


def plain_record(cls: type[Record], value: Any) -> dict[str, Any]:
    """The fields of an instance of ``cls`` as Avro has them; raises ``Misfit`` for anything else."""
    if not isinstance(value, cls):
        raise wanted(f"an instance of {cls.__name__}", value)
    return {name: field.plain(value.__dict__[name]) for name, field in cls._fields.items()}


def made_record(cls: type[R], values: Mapping[str, Any]) -> R:
    """A record of fields as Avro has them: payloads of others may have nulls that ours would not."""
    record = cls.__new__(cls)
    record.__dict__["_options"] = {}
    for name, field in cls._fields.items():
        record.__dict__[name] = field.made(values.get(name))
    return record


def record_enums(cls: type[Record]) -> dict[str, type[enum.Enum]]:
    """The enums of all fields, by their names."""
    found: dict[str, type[enum.Enum]] = {}
    for field in cls._fields.values():
        found |= field.enums()
    return found


def _declared_field(declared: object) -> Field[Any] | None:
    """The field that a class attribute declares; None if it is something else."""
    if isinstance(declared, Field):
        return declared
    if isinstance(declared, Record):
        options: dict[str, Any] = declared.__dict__["_options"]
        return _Nested(
            type(declared),
            options.get("default"),
            bool(options.get("required")),
            bool(options.get("required_default")),
        )
    if isinstance(declared, type) and issubclass(declared, Record):
        return _Nested(declared, None, False, False)
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return CustomEnum(declared)
    return None


def _field_of(declared: object) -> Field[Any]:
    field = _declared_field(declared)
    if field is None:
        raise UsageError(
            f"{declared!r} is no type of items", hint="give a field, such as String(), a record or an enum"
        )
    return field
