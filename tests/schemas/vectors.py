# SPDX-License-Identifier: Apache-2.0
"""Pairs of Avro schemas and the verdicts of Java's library, in the notation of ``notation``."""

from __future__ import annotations

import json
from typing import Final, NamedTuple


class Vector(NamedTuple):
    """A pair: whether new reads old (backward), and old reads new (forward)."""

    number: int
    case: str
    old: str
    new: str
    backward: bool
    forward: bool


VECTORS: Final = tuple(
    Vector(*each)
    for each in (
        (0, "identical", "{a:int}", "{a:int}", True, True),
        (1, "add field, no default", "{a:int}", "{a:int, b:string}", False, True),
        (2, "add field with default", "{a:int}", '{a:int, b:string="x"}', True, True),
        (3, "add nullable field, no default", "{a:int}", "{a:int, b:?string}", False, True),
        (4, "add nullable field, default null", "{a:int}", "{a:int, b:?string=null}", True, True),
        (5, "remove field that had no default", "{a:int, b:string}", "{a:int}", True, False),
        (6, "remove field that had a default", '{a:int, b:string="x"}', "{a:int}", True, True),
        (7, "remove nullable field without default", "{a:int, b:?string}", "{a:int}", True, False),
        (8, "remove nullable field with default null", "{a:int, b:?string=null}", "{a:int}", True, True),
        (9, "remove one, add one, both with default", "{a:int, b:int=1}", "{a:int, c:int=1}", True, True),
        (10, "reorder fields", "{a:int, b:string}", "{b:string, a:int}", True, True),
        (11, "rename field, no alias", "{a:int}", "{b:int}", False, False),
        (12, "rename field, alias in new", "{a:int}", "{b:int (alias a)}", True, False),
        (13, "rename field, alias in new, default in old", "{a:int=0}", "{b:int (alias a)}", True, True),
        (14, "rename field, alias in new, defaults in both", "{a:int=0}", "{b:int=0 (alias a)}", True, True),
        (15, "default dropped", "{a:int=1}", "{a:int}", True, True),
        (16, "default changed", "{a:int=1}", "{a:int=2}", True, True),
        (17, "doc added", "{a:int}", "(doc){a:int}", True, True),
        (18, "sort order changed", "{a:int}", "{a:int (order descending)}", True, True),
        (19, "empty record to a defaulted field", "{}", "{a:int=0}", True, True),
        (20, "promotion", "{a:int}", "{a:long}", True, False),
        (21, "promotion", "{a:int}", "{a:float}", True, False),
        (22, "promotion", "{a:int}", "{a:double}", True, False),
        (23, "promotion", "{a:long}", "{a:float}", True, False),
        (24, "promotion", "{a:long}", "{a:double}", True, False),
        (25, "promotion", "{a:float}", "{a:double}", True, False),
        (26, "promotion", "{a:string}", "{a:bytes}", True, True),
        (27, "promotion", "{a:bytes}", "{a:string}", True, True),
        (28, "promotion", "{a:float}", "{a:long}", False, True),
        (29, "promotion", "{a:boolean}", "{a:int}", False, False),
        (30, "promotion", "{a:int}", "{a:string}", False, False),
        (31, "promotion", "{a:int}", "{a:boolean}", False, False),
        (32, "promotion", "{a:null}", "{a:int}", False, False),
        (33, "promotion", "{a:string}", "{a:fixed(4)}", False, False),
        (34, "value to nullable", "{a:int}", "{a:?int}", True, False),
        (35, "nullable to value", "{a:?int}", "{a:int}", False, True),
        (36, "nullable to value with default", "{a:?int}", "{a:int=0}", False, True),
        (37, "widen inside union", "{a:?int}", "{a:?long}", True, False),
        (38, "add union branch", "{a:?int}", "{a:[null | int | string]}", True, False),
        (39, "union order", "{a:?string}", "{a:[string | null]}", True, True),
        (40, "drop union branch", "{a:[int | string]}", "{a:[string]}", False, True),
        (41, "union to its only value branch", "{a:[string]}", "{a:string}", True, True),
        (42, "different branch", "{a:?int}", "{a:?string}", False, False),
        (43, "string to union with bytes", "{a:string}", "{a:?bytes}", True, False),
        (44, "int to union of string, double", "{a:int}", "{a:[string | double]}", True, False),
        (45, "int,long union to long", "{a:[int | long]}", "{a:long}", True, True),
        (46, "union branch record renamed (same short name gone)", "{a:?X{x:int}}", "{a:?Y{x:int}}", True, True),
        (47, "union branch record, other namespace", "{a:?p.X{x:int}}", "{a:?q.X{x:int}}", True, True),
        (48, "union branch record gains field without default", "{a:?X{x:int}}", "{a:?X{x:int, y:int}}", False, True),
        (49, "union branch record gains field with default", "{a:?X{x:int}}", "{a:?X{x:int, y:int=0}}", True, True),
        (50, "enum: add symbol", "{a:enum<A,B>}", "{a:enum<A,B,C>}", True, True),
        (
            51,
            "enum: add symbol, default in both",
            "{a:enum<A,B ; default A>}",
            "{a:enum<A,B,C ; default A>}",
            True,
            True,
        ),
        (52, "enum: add symbol, default only in new", "{a:enum<A,B>}", "{a:enum<A,B,C ; default A>}", True, True),
        (53, "enum: remove symbol", "{a:enum<A,B,C>}", "{a:enum<A,B>}", True, True),
        (54, "enum: remove symbol, default in new", "{a:enum<A,B,C>}", "{a:enum<A,B ; default A>}", True, True),
        (55, "enum: field default is not the enum default", "{a:enum<A,B,C>}", '{a:enum<A,B>="A"}', True, True),
        (56, "enum: reorder symbols", "{a:enum<A,B>}", "{a:enum<B,A>}", True, True),
        (57, "enum: renamed", "{a:enum E1<A>}", "{a:enum E2<A>}", False, False),
        (58, "enum: renamed, alias in new", "{a:enum E1<A>}", "{a:enum E2(alias E1)<A>}", True, False),
        (59, "enum: other namespace", "{a:enum p.E<A>}", "{a:enum q.E<A>}", True, True),
        (60, "enum to string", "{a:enum<A>}", "{a:string}", False, False),
        (61, "string to enum", "{a:string}", "{a:enum<A>}", False, False),
        (62, "array items int to long", "{a:array<int>}", "{a:array<long>}", True, False),
        (63, "array items to nullable", "{a:array<string>}", "{a:array<?string>}", True, False),
        (64, "map values int to long", "{a:map<int>}", "{a:map<long>}", True, False),
        (65, "array to map", "{a:array<int>}", "{a:map<int>}", False, False),
        (
            66,
            "array of record, field added without default",
            "{a:array<X{x:int}>}",
            "{a:array<X{x:int, y:int}>}",
            False,
            True,
        ),
        (
            67,
            "array of record, field added with default",
            "{a:array<X{x:int}>}",
            "{a:array<X{x:int, y:int=0}>}",
            True,
            True,
        ),
        (68, "map of record, field removed", "{a:map<X{x:int, y:int}>}", "{a:map<X{x:int}>}", True, False),
        (69, "value to array", "{a:int}", "{a:array<int>}", False, False),
        (70, "fixed: size changed", "{a:fixed(4)}", "{a:fixed(8)}", False, False),
        (71, "fixed: renamed", "{a:fixed F1(4)}", "{a:fixed F2(4)}", False, False),
        (72, "fixed: renamed, alias in new", "{a:fixed F1(4)}", "{a:fixed F2(alias F1)(4)}", True, False),
        (73, "fixed to bytes", "{a:fixed(4)}", "{a:bytes}", False, False),
        (74, "bytes to fixed", "{a:bytes}", "{a:fixed(4)}", False, False),
        (75, "top record renamed", "R1{a:int}", "R2{a:int}", True, True),
        (76, "top record renamed, alias in new", "R1{a:int}", "R2(alias R1){a:int}", True, True),
        (77, "top record, other namespace", "p.R{a:int}", "q.R{a:int}", True, True),
        (78, "top record, namespace added", "{a:int}", "q.R{a:int}", True, True),
        (79, "nested record renamed", "{a:X{x:int}}", "{a:Y{x:int}}", True, True),
        (80, "nested record renamed, alias in new", "{a:X{x:int}}", "{a:Y(alias X){x:int}}", True, True),
        (81, "nested record, other namespace", "{a:p.X{x:int}}", "{a:q.X{x:int}}", True, True),
        (82, "nested record gains field without default", "{a:X{x:int}}", "{a:X{x:int, y:int}}", False, True),
        (83, "nested record loses field", "{a:X{x:int, y:int}}", "{a:X{x:int}}", True, False),
        (84, "record to map", "{a:X{x:int}}", "{a:map<int>}", False, False),
        (85, "logical: int to date", "{a:int}", "{a:int date}", True, True),
        (86, "logical: long to timestamp-millis", "{a:long}", "{a:long timestamp-millis}", True, True),
        (87, "logical: millis to micros", "{a:long timestamp-millis}", "{a:long timestamp-micros}", True, True),
        (88, "logical: date to timestamp-millis", "{a:int date}", "{a:long timestamp-millis}", True, False),
        (89, "logical: time-millis to time-micros", "{a:int time-millis}", "{a:long time-micros}", True, False),
        (90, "logical: decimal precision", "{a:bytes decimal(10,2)}", "{a:bytes decimal(12,2)}", True, True),
        (91, "logical: decimal scale", "{a:bytes decimal(10,2)}", "{a:bytes decimal(10,3)}", True, True),
        (
            92,
            "logical: decimal bytes to decimal fixed",
            "{a:bytes decimal(10,2)}",
            "{a:fixed(8) decimal(10,2)}",
            False,
            False,
        ),
        (93, "logical: string to uuid", "{a:string}", "{a:string uuid}", True, True),
        (94, "string with avro.java.string property", "{a:string}", "{a:string+prop}", True, True),
        (95, "recursive, same", "{v:int, next:?R}", "{v:int, next:?R}", True, True),
        (96, "recursive, field added with default", "{v:int, next:?R}", "{v:int, next:?R, z:int=0}", True, True),
        (97, "recursive, field added without default", "{v:int, next:?R}", "{v:int, next:?R, z:int}", False, True),
        (98, "top level int to long", "int", "long", True, False),
        (99, "top level string to record", "string", "{a:int}", False, False),
        (100, "top level union", "?int", "[null | int | string]", True, False),
        (101, "default of wrong type (not validated)", "{a:int}", '{a:int, b:int="x"}', False, True),
        (102, "nullable, default of second branch", "{a:int}", '{a:int, b:?string="x"}', True, True),
        (103, "name with $", "{a:int}", "{a:int, $b:int=0}", True, True),
        (104, "name with -", "{a:int}", "{a:int, b-c:int=0}", False, False),
        (105, "name not ASCII", "{a:int}", "{a:int, é:int=0}", True, True),
        (106, "enum symbol with -", "{a:enum<A,B>}", "{a:enum<A,B,C-D>}", False, False),
        (107, "duplicate field", "{a:int}", "{a:int, a:int}", False, False),
        (108, "unknown type name", "{a:int}", "{a:int, b:Missing=null}", False, False),
        (109, "not Avro at all", "{a:int}", '{"type": "object", "properties": {}}', False, False),
        (110, "nullable enum, other namespace, same symbols", "{a:?enum p.E<A,B>}", "{a:?enum q.E<A,B>}", True, True),
        (
            111,
            "nullable enum, other namespace, symbol added",
            "{a:?enum p.E<A,B>}",
            "{a:?enum q.E<A,B,C>}",
            False,
            False,
        ),
        (112, "nullable enum, symbol added", "{a:?enum<A,B>}", "{a:?enum<A,B,C>}", True, True),
        (113, "nullable fixed, other namespace", "{a:?fixed p.F(4)}", "{a:?fixed q.F(4)}", True, True),
        (114, "nullable record, other name, defaults filled", "{a:?X{x:int}}", "{a:?Y{x:int, y:int=0}}", True, True),
        (115, "needed default of wrong type in nested record", "{a:X{x:int}}", '{a:X{x:int, y:long="z"}}', False, True),
        (116, "rename field, alias in new, other record namespace", "p.R{a:int}", "q.R{b:int (alias a)}", False, False),
        (
            117,
            "rename field, alias in new, record renamed with alias",
            "R1{a:int}",
            "R2(alias R1){b:int (alias a)}",
            True,
            False,
        ),
    )
)


def _named(**attributes: object) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [], **attributes})


def _with_default(text: str) -> str:
    return f'{{"type":"record","name":"R","fields":[{{"name":"a","type":"double","default":{text}}}]}}'


TEXTS: Final = (
    *((_named(namespace=each), True) for each in ("", "a.b", "a$", "é")),
    *((_named(namespace=each), False) for each in ("a b", "a-b", "1a", "a.1", "a..b", ".a", "a.", ".", "\ud800")),
    *((_named(name=each), True) for each in (".R", "a.R", "é", "ª", "a٣")),
    *((_named(name=each), False) for each in ("a b.R", "a..R", "a²", "aⅷ", "٣", "\U0001d49c", "a\U0001d7ce", "\ud800")),
    *((_named(aliases=[each]), True) for each in ("B", ".B", "a b.B")),
    *((_named(aliases=[each]), False) for each in ("", "a b", "1")),
    *((_with_default(each), True) for each in ("1e400", '"NaN"', '"-Infinity"', '"1."', '" .5e+3d "', '"+1F"')),
    *(
        (_with_default(each), False)
        for each in ("NaN", "-Infinity", '"nan"', '"inf"', '"1_0"', '"1e"', '"NaNf"', '"٣"')
    ),
)
"""Definitions, and whether Java takes them: names, namespaces, aliases, and texts that stand for numbers."""
