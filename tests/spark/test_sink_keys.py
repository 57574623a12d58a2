# SPDX-License-Identifier: Apache-2.0
"""In which form keys go out, without a session: option, column, and what the bytes say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import ConfigError
from broker_core.wire.batch import decode_entries, encode_entries
from broker_core.wire.entry import EntryRef
from pulsarish_spark.options import KeyForm
from pulsarish_spark.sink.rows import with_key_forms

TEXT_AND_BYTES = pa.array([b"user-0", b"\xff\x00", None, "Zürich".encode(), b""], pa.binary())


def forms(keys: pa.Array, form: KeyForm, told: list[bool | None] | None = None) -> list[bool | None]:
    """Whether each key travels as bytes, None for no key; the keys themselves must be what they were."""
    columns = {"key": keys} | ({} if told is None else {"key_is_bytes": pa.array(told, pa.bool_())})
    ready = with_key_forms(pa.record_batch(columns), form)
    entries = encode_entries(ready, producer_name="p", first_sequence_id=0, publish_time_ms=1)
    found = decode_entries([EntryRef(1, n, e.body) for n, e in enumerate(entries)], ["key", "key_is_bytes"])
    assert found["key"].to_pylist() == keys.cast(pa.binary()).to_pylist()
    answer: list[bool | None] = found["key_is_bytes"].to_pylist()
    return answer


def test_keys_that_are_utf8_go_out_as_text_and_others_as_bytes() -> None:
    """What the source gives as bytes is what other clients wrote as text, unless it cannot be."""
    assert forms(TEXT_AND_BYTES, "auto") == [False, True, None, False, False]
    assert forms(TEXT_AND_BYTES.slice(2, 3), "auto") == [None, False, False]
    assert forms(pa.array(["a", None]), "auto") == [False, None]


def test_the_column_of_the_source_decides_row_by_row() -> None:
    """A key that was bytes stays bytes though it could be text; a null leaves it to the key."""
    assert forms(TEXT_AND_BYTES, "auto", [True, None, None, False, None]) == [True, True, None, False, False]
    assert forms(TEXT_AND_BYTES, "auto", [None] * 5) == [False, True, None, False, False]
    assert forms(pa.array(["a", "b"]), "auto", [True, False]) == [True, False]


def test_the_option_beats_the_column() -> None:
    """Either form can be forced; a string column can be sent as bytes too."""
    assert forms(TEXT_AND_BYTES, "bytes", [False] * 5) == [True, True, None, True, True]
    assert forms(pa.array(["a", None]), "bytes") == [True, None]
    assert forms(TEXT_AND_BYTES.take(pa.array([0, 2])), "text", [True, True]) == [False, None]


@pytest.mark.parametrize(("form", "told"), [("text", None), ("auto", [False] * 5)])
def test_a_key_that_must_be_text_and_is_not_is_refused_by_name(form: Any, told: Any) -> None:
    """Rows have no numbers in Spark, so the error shows the key."""
    with pytest.raises(ConfigError) as caught:
        forms(TEXT_AND_BYTES, form, told)
    assert str(caught.value) == (
        'the key b\'\\xff\\x00\' is to be sent as text, but it is not UTF-8; .option("keyForm", "bytes") sends all '
        "keys as bytes; without it and without a column key_is_bytes only those that are no text are"
    )


def test_rows_without_keys_need_no_form() -> None:
    """The column of the source is there all the same when keys were dropped."""
    rows = pa.record_batch({"value": pa.array([b"v"]), "key_is_bytes": pa.array([True])})
    assert with_key_forms(rows, "auto").schema.names == ["value"]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=8), st.text(max_size=8).map(str.encode)), max_size=12))
def test_the_form_follows_from_utf8_alone(keys: list[bytes | None]) -> None:
    """Python's own decoder is the judge."""

    def is_bytes(key: bytes | None) -> bool | None:
        try:
            return None if key is None else key.decode() is None
        except UnicodeDecodeError:
            return True

    if keys:
        assert forms(pa.array(keys, pa.binary()), "auto") == [is_bytes(key) for key in keys]
