# SPDX-License-Identifier: Apache-2.0
"""The error tree."""

import pickle

import pytest

from broker_core.base import errors
from broker_core.wire.proto import pulsar_api_pb2 as pb


@pytest.mark.parametrize("code", pb.ServerError.values())
def test_every_error_of_the_protocol_has_a_class(code: int) -> None:
    """The map from code to class is total, and gives the code back."""
    made = errors.server_error(code, "why")
    assert made.code == code
    assert (type(made) is errors.ServerError) == (code == pb.UnknownError)


def test_an_unknown_code_is_still_an_error() -> None:
    """A newer broker may answer with a code that we have never seen."""
    assert type(errors.server_error(999, "why")) is errors.ServerError


def test_errors_cross_process_borders_whole() -> None:
    """Spark pickles exceptions of its Python workers: the hint and the class survive."""
    back = pickle.loads(pickle.dumps(errors.ConfigError("no such option", hint="did you mean topic?")))
    assert (type(back), str(back)) == (errors.ConfigError, "no such option; did you mean topic?")


def test_errors_about_rows_cross_process_borders_whole() -> None:
    """The row, its flaw and the rows whose fate is unknown survive too."""
    row = pickle.loads(pickle.dumps(errors.RowError(7, "has no key", hint="give it one")))
    assert (row.row, row.flaw, row.hint, str(row)) == (7, "has no key", "give it one", "row 7 has no key; give it one")
    unknown = pickle.loads(pickle.dumps(errors.RowsUnconfirmedError("half-way", hint="look", unknown_rows=(1, 2))))
    assert (unknown.unknown_rows, str(unknown)) == ((1, 2), "half-way; look")
