# SPDX-License-Identifier: Apache-2.0
"""Compiled kernels: what they take and give, and how what was compiled is found again, or made anew."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker_core.wire.batch import kernel_compiler
from broker_core.wire.batch.compiled import uncompiled
from broker_core.wire.batch.machine_code import Parameter

SOURCE = '''
from broker_core.wire.batch.compiled import ZERO, helper, int64, kernel

@helper
def _twice(number):
    return 2 * number

@helper
def _quadruple(number):
    return _twice(_twice(number))

@kernel
def measure(table, bytes, factor):
    """Quadruple of the sum of a table, times a factor, and how many bytes there are."""
    total = ZERO
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            total += _quadruple(table[row, column]) * factor
    return total, int64(bytes.size)

@kernel
def fill(numbers, value):
    for at in range(numbers.size):
        numbers[at] = value

@kernel
def largest(numbers):
    found = numbers[0]
    for at in range(numbers.size):
        found = max(found, numbers[at])
    return found

@kernel
def refuse(numbers):
    if numbers[0] < 0:
        raise IndexError

@kernel
def half(numbers):
    return numbers[0] / 2
'''

TABLE = np.arange(6, dtype=np.int64).reshape(2, 3)
BYTES = np.frombuffer(b"abcd", np.uint8)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a source anew, as another process would, with a cache of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    # Python takes its bytecode for that of any source of the same size and second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(source: str) -> Any:
        path = tmp_path / "kernels.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("kernels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were compiled, in order."""
    names: list[str] = []
    real = kernel_compiler.compile_kernel

    def compile_kernel(function: Any, *others: Any) -> Any:
        names.append(function.__name__)
        return real(function, *others)

    monkeypatch.setattr(kernel_compiler, "compile_kernel", compile_kernel)
    return names


def test_a_kernel_gives_what_its_source_gives(load: Callable[[str], Any]) -> None:
    """Nothing, one integer or several; tables, read-only bytes and integers go in, also empty arrays."""
    kernels = load(SOURCE)
    assert kernels.measure(TABLE, BYTES, -3) == uncompiled(kernels.measure)(TABLE, BYTES, -3) == (-180, 4)
    assert kernels.measure(np.empty((0, 3), np.int64), BYTES[:0], 1) == (0, 0)
    numbers = np.zeros(3, np.int64)
    assert kernels.fill(numbers, 2**62) is None
    assert numbers.tolist() == [2**62] * 3
    assert kernels.largest(np.array([3, -5, 9])) == 9


def test_arguments_of_another_type_are_refused(load: Callable[[str], Any]) -> None:
    """Machine code believes what it is given: a wrong element type, shape or stride would read foreign memory."""
    kernels = load(SOURCE)
    kernels.measure(TABLE, BYTES, 1)
    for table in (TABLE.astype(np.int32), TABLE[0], TABLE[:, ::2], TABLE.T):
        with pytest.raises(TypeError, match="kernel measure takes"):
            kernels.measure(table, BYTES, 1)
    with pytest.raises(ValueError, match="argument"):
        kernels.measure(TABLE, BYTES)


def test_a_kernel_that_raises_is_an_error_of_ours(load: Callable[[str], Any]) -> None:
    """Only a kernel that was compiled with bounds checks does; it must neither crash nor pass for a good result."""
    kernels = load(SOURCE)
    assert kernels.refuse(np.array([0])) is None
    with pytest.raises(SystemError, match="kernel refuse ended with status"):
        kernels.refuse(np.array([-1]))


def test_what_was_compiled_is_found_again(load: Callable[[str], Any], compilations: list[str]) -> None:
    """A second process does not compile; one with another source does, and does not run the old code."""
    for _ in range(2):
        assert load(SOURCE).measure(TABLE, BYTES, 1) == (60, 4)
    assert compilations == ["measure"]
    changed = SOURCE.replace("return 2 * number", "return 3 * number")
    for _ in range(2):
        assert load(changed).measure(TABLE, BYTES, 1) == (135, 4)
    assert compilations == ["measure", "measure"]


def test_a_damaged_file_is_made_again(load: Callable[[str], Any], compilations: list[str], tmp_path: Path) -> None:
    """Cut, changed in any byte, or empty: code whose checksum does not hold is never run."""
    load(SOURCE).largest(np.array([1]))
    (kept,) = (tmp_path / "cache").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-9] + b"x" + whole[-8:], b"x" + whole[1:]):
        kept.write_bytes(damaged)
        for _ in range(2):
            assert load(SOURCE).largest(np.array([1, 2])) == 2
    assert compilations == ["largest"] * 6


def test_without_a_place_to_keep_them_kernels_are_compiled_each_time(
    load: Callable[[str], Any], compilations: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only installation for a user without a home is slow to start, but works."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    for _ in range(2):
        assert load(SOURCE).largest(np.array([1, 2])) == 2
    assert compilations == ["largest", "largest"]


def test_kernels_are_kept_beside_their_source_or_else_for_the_user(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python does it with bytecode; a source inside an archive has only the user's cache directory."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    load(SOURCE).largest(np.array([1]))
    assert [path.name.split("-")[0] for path in (tmp_path / "__pycache__").glob("*.kernel")] == ["kernels.largest"]
    monkeypatch.setattr(Path, "mkdir", _only_below(tmp_path / "home"))
    load(SOURCE.replace("max(", "min(")).largest(np.array([1]))
    assert len(list((tmp_path / "home" / "pulsarish").iterdir())) == 1


def _only_below(folder: Path) -> Callable[..., None]:
    real = Path.mkdir

    def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if not path.is_relative_to(folder):
            raise PermissionError(path)
        real(path, *arguments, **options)

    return mkdir


def test_a_result_that_is_no_integer_is_refused_when_it_is_compiled(load: Callable[[str], Any]) -> None:
    """A mistake of whoever writes the kernel, not of numba."""
    with pytest.raises(TypeError, match="not float64"):
        load(SOURCE).half(np.array([1]))


def test_with_a_calling_convention_that_is_not_ours_kernels_are_called_through_numba(
    load: Callable[[str], Any], compilations: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A newer numba may pass arguments in another way: that is noticed, and costs time but no result."""
    monkeypatch.setattr(Parameter, "llvm_types", property(lambda _: ["ptr"]))
    kernels = load(SOURCE)
    for factor in (-3, 1):
        assert kernels.measure(TABLE, BYTES, factor) == uncompiled(kernels.measure)(TABLE, BYTES, factor)
    numbers = np.zeros(3, np.int64)
    kernels.fill(numbers, 7)
    assert numbers.tolist() == [7, 7, 7]
    assert compilations == ["measure", "fill"]
    assert not (tmp_path / "cache").exists()
