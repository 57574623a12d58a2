# SPDX-License-Identifier: Apache-2.0
"""The page that compares, and the command that holds it to its tests."""

from __future__ import annotations

import pytest

from tests.comparison import PAGE, Claim, faults, main, read_claims

PAGE_TEXT = """
## Features
| feature | here | shown by |
|---|---|---|
| Reads | yes | `test_comparison.py::test_rows_are_read_with_their_tests_or_their_reason` |
| Flies | - | no: it has no wings |

| another table | of facts |
|---|---|
| Not a claim | at all |
"""


def test_rows_are_read_with_their_tests_or_their_reason() -> None:
    """Only tables that say what shows them make claims."""
    shown = (("test_comparison.py", "test_rows_are_read_with_their_tests_or_their_reason"),)
    assert read_claims(PAGE_TEXT) == [
        Claim("Features", "Reads", shown, ""),
        Claim("Features", "Flies", (), "it has no wings"),
    ]
    assert list(faults(read_claims(PAGE_TEXT))) == []


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        (Claim("", "Reads", (), ""), "Reads: names neither a test nor a reason"),
        (Claim("", "Reads", (("test_layers.py", "test_it"),), "why"), "Reads: names tests and a reason"),
        (Claim("", "Reads", (("test_layers.py", "test_it"),), ""), "Reads: there is no test_layers.py::test_it"),
        (Claim("", "Reads", (("spark/none.py", "test_it"),), ""), "Reads: there is no spark/none.py::test_it"),
    ],
)
def test_a_claim_without_a_test_is_a_fault(claim: Claim, fault: str) -> None:
    """Nor may a row have both, for then it would be unclear whether it is claimed."""
    assert fault in list(faults([claim]))


def test_the_page_names_tests_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every row of docs/comparison.md is shown by a test or says why it is empty."""
    assert main([]) == 0, capsys.readouterr().out
    assert len(read_claims(PAGE.read_text(encoding="utf-8"))) > 60
