# SPDX-License-Identifier: Apache-2.0
"""Copies of damaged bytes: whole and durable or not there, and never so many that they are a harm themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_core.storage import disk as disk_module
from broker_core.storage.disk import Space, copy_aside
from broker_core.testing.sim_disk import CHANGES, POLICIES, SimDisk

FOLDER = "/data/quarantine"
SOURCE = "/data/1.log"
TARGET = f"{FOLDER}/1.bin"


def damaged() -> SimDisk:
    """A disk with a file of 3000 bytes and a folder for copies."""
    disk = SimDisk()
    disk.mkdir(FOLDER)
    disk.replace(SOURCE, bytes(range(250)) * 12)
    return disk


def test_a_copy_is_whole_and_durable() -> None:
    """2.4 A6: of a range, and of a whole file."""
    disk = damaged()
    copy_aside(disk, SOURCE, TARGET, 100, 900)
    copy_aside(disk, SOURCE, TARGET + "2")
    after = disk.crash(0, "none")
    assert after.contents(TARGET) == disk.contents(SOURCE)[100:900]
    assert after.contents(TARGET + "2") == disk.contents(SOURCE)


def test_a_copy_that_is_interrupted_is_not_there() -> None:
    """2.4 A6: by a power loss or an error of the disk; the next one is made."""
    for k in range(1, 20):
        disk = damaged()
        images: list[SimDisk] = []
        disk.fail(k, kinds=CHANGES)
        disk.before = lambda kind, path, disk=disk, images=images: images.extend(
            disk.crash(1, each) for each in POLICIES
        )
        copy_aside(disk, SOURCE, TARGET)
        disk.before = None
        failed = bool(disk.faults_hit)
        disk.heal()
        for image in [*images, disk]:
            if image.exists(TARGET):
                assert image.contents(TARGET) == disk.contents(SOURCE)
            copy_aside(image, SOURCE, TARGET)
            assert image.list_dir(FOLDER) == ["1.bin"]
        if not failed:
            return
    pytest.fail("it was never made")


def _power_losses(disk: SimDisk, images: list[SimDisk]) -> Callable[[str, str], None]:
    return lambda kind, path: images.extend(disk.crash(1, each) for each in POLICIES)


@pytest.mark.parametrize(("free", "copied"), [(3999, False), (4000, True)])
def test_a_tenth_of_the_disk_stays_free(free: int, copied: bool) -> None:
    """2.4 A6: the broker needs room more than an investigation does."""
    disk = damaged()
    disk.space_left = Space(free, 10_000)
    copy_aside(disk, SOURCE, TARGET)
    assert disk.exists(TARGET) == copied


@pytest.mark.parametrize(
    ("limit", "value"), [("_COPIES_MAX", 2), ("_COPIES_BYTES_MAX", 8999), ("_COPY_BYTES_MAX", 2999)]
)
def test_copies_are_bounded_in_number_and_size(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.4 A6: what starts before have left counts too."""
    monkeypatch.setattr(disk_module, limit, value)
    disk = damaged()
    for number in range(4):
        copy_aside(disk, SOURCE, f"{FOLDER}/{number}.bin")
    assert len(disk.list_dir(FOLDER)) == (0 if limit == "_COPY_BYTES_MAX" else 2)
