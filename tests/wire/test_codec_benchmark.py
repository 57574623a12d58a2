# SPDX-License-Identifier: Apache-2.0
"""The codec's benchmark measures something."""

from __future__ import annotations

from benchmarks import codec


def test_every_case_gives_a_figure() -> None:
    """In the shape that the bench runner takes; how large the figures are is not a matter of tests."""
    results = codec.run(quick=True)
    assert len({result["case"] for result in results}) == len(results) > 20
    for result in results:
        assert result["unit"] in ("msgs/s", "us", "s")
        assert all(value > 0 for value in result["values"])
        assert isinstance(result["note"], str)
