# SPDX-License-Identifier: Apache-2.0
"""Reading bodies as Pulsar's brokers do: what may stand for what, and what stays an error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from broker_core.server.admin.bodies import decoded


class Thing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field of each kind that requests have."""

    count: int = 0
    names: list[str] = []
    properties: dict[str, str] = {}
    active: bool = False
    limit: int | None = None


@pytest.mark.parametrize(
    ("content", "thing"),
    [
        ('{"count":4,"names":null,"properties":null,"active":null}', Thing(4)),
        ('{"count":" 4 ","limit":"-1"}', Thing(4, limit=-1)),
        ('{"count":4.0,"limit":1e2}', Thing(4, limit=100)),
        ('{"names":["a",1,1.50,true]}', Thing(names=["a", "1", "1.50", "true"])),
        ('{"properties":{"a":1,"b":false}}', Thing(properties={"a": "1", "b": "false"})),
        ('{"active":"TRUE"}', Thing(active=True)),
        ('{"active":1}', Thing(active=True)),
    ],
)
def test_what_other_languages_write_is_read(content: str, thing: Thing) -> None:
    """1.2.2: admin libraries in Go and JavaScript send null for what they leave out, and numbers as text."""
    assert decoded(content.encode(), Thing) == thing


@pytest.mark.parametrize(
    "content",
    [
        *('{"count":4.7}', '{"count":""}', '{"count":true}', '{"count":[4]}', '{"count":1e400}', '{"count":"1e2"}'),
        *('{"count":"٤"}', '{"count":"99999999999999999999999"}', '{"active":"yes"}', '{"active":1.5}', '{"active":7}'),
        *(
            '{"names":"a"}',
            '{"names":[null]}',
            '{"properties":{"a":null}}',
            '{"properties":[]}',
            '{"other":1}',
            "4",
            "null",
        ),
    ],
)
def test_what_would_be_a_guess_is_refused(content: str) -> None:
    """Nothing is cut, and null and empty text are not 0."""
    with pytest.raises(msgspec.DecodeError):
        decoded(content.encode(), Thing)


@pytest.mark.parametrize(
    ("content", "kind", "value"),
    [('"4"', int | Thing, 4), ("4.0", int | None, 4), ('"4"', Thing | str, "4"), ("null", int | None, None)],
)
def test_a_union_is_read_as_the_kind_that_fits(content: str, kind: Any, value: object) -> None:
    """A number of partitions alone, or an object around it; a word, or a message id."""
    assert decoded(content.encode(), kind) == value
