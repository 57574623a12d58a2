# SPDX-License-Identifier: Apache-2.0
"""A slice of the fuzz of payloads, and that it notices what is wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from broker_core.values.decoder import ValueDecoder
from broker_core.values.decoding import Decoded, Flaw
from tests.fuzz import payloads
from tests.fuzz.payload_cases import Case

_SHARES = payloads.shares(4_000)


@pytest.mark.parametrize(("case", "amount"), _SHARES, ids=[case.name for case, _ in _SHARES])
def test_any_payload_is_a_value_or_a_flaw(case: Case, amount: int) -> None:
    """And the rows beside it are what they are alone."""
    found = payloads.run(case, 1, amount)
    assert found.failures == []
    assert found.mutated >= amount
    assert found.flaws or case.name in ("STRING", "BYTES", "NONE")


class _Faulty(ValueDecoder):
    """A decoder that tells nothing of flaws, or of too many."""

    is_silent = True

    def decode(self, values: pa.Array, versions: pa.Array, keys: pa.Array | None = None) -> Decoded:
        found = super().decode(values, versions, keys)
        return Decoded(found.rows, [] if self.is_silent else [Flaw(row, "x") for row in range(len(values))])


@pytest.mark.parametrize(("is_silent", "told"), [(True, "is null without a flaw"), (False, "has a flaw and a value")])
def test_the_rig_notices_a_fault(monkeypatch: pytest.MonkeyPatch, is_silent: bool, told: str) -> None:
    monkeypatch.setattr(payloads, "ValueDecoder", _Faulty)
    monkeypatch.setattr(_Faulty, "is_silent", is_silent)
    failures = payloads.run(_SHARES[0][0], 1, 200).failures
    assert len(failures) == 1
    assert told in failures[0]
