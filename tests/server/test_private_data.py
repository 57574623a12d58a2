# SPDX-License-Identifier: Apache-2.0
"""What a broker process leaves on the disk is for its user alone, and no link leads it elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.base.runtime import DATA_LOCK_FILE, RUNTIME_FILE
from broker_core.client import Client
from broker_core.testing.running_broker import BrokerExitedError, RunningBroker


@pytest.fixture
def generous() -> Iterator[None]:
    """A user whose new files everybody may read and write."""
    usual = os.umask(0)
    yield
    os.umask(usual)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _use(broker: RunningBroker) -> None:
    """Have files of every kind made: entries, acknowledgements, names."""
    with Client(broker.service_url) as client:
        consumer = client.subscribe("private", "s")
        with client.create_producer("private") as producer:
            producer.send(b"secret")
        consumer.acknowledge(consumer.receive(timeout_s=60))


@pytest.mark.usefixtures("generous")
def test_files_and_folders_are_for_their_owner_whatever_the_umask(data_dir: Path) -> None:
    """Nothing is told of others, because there are none."""
    with RunningBroker(data_dir) as broker:
        _use(broker)
        everything = [data_dir, *data_dir.rglob("*")]
        assert {each.name for each in everything} >= {"catalogue", "catalogue.copy", RUNTIME_FILE, "ledgers", "cursors"}
        assert {each: oct(_mode(each)) for each in everything if _mode(each) & 0o077} == {}
        assert "others than the owner" not in broker.stderr


def test_what_others_may_read_is_told_at_the_start(data_dir: Path) -> None:
    """A directory that was made readable goes on being used, since that may be meant so, but not without a word."""
    with RunningBroker(data_dir) as broker:
        broker.stop()
        data_dir.chmod(0o755)
        (data_dir / "marks").chmod(0o644)
        broker.start()
        told = f"others than the owner may use the data paths={data_dir} (mode 0755), {data_dir / 'marks'} (mode 0644)"
        assert told in broker.stderr


@pytest.mark.parametrize("name", ["catalogue", "catalogue.copy", "FORMAT", DATA_LOCK_FILE])
def test_a_link_in_place_of_a_file_is_refused(name: str, data_dir: Path, tmp_path: Path) -> None:
    """The broker does not start, names the link, and leaves what it leads to as it is."""
    target = tmp_path / "of somebody else"
    with RunningBroker(data_dir) as broker:
        broker.stop()
        target.write_bytes(b"precious")
        (data_dir / name).unlink(missing_ok=True)
        (data_dir / name).symlink_to(target)
        with pytest.raises(BrokerExitedError, match=f"{data_dir / name} is a symbolic link instead of a file"):
            broker.start()
        (data_dir / name).unlink()
    assert target.read_bytes() == b"precious"


def test_the_runtime_file_is_not_written_through_a_link(data_dir: Path, tmp_path: Path) -> None:
    """Whoever could leave a link in the directory had the broker overwrite any file of its user."""
    target = tmp_path / "of somebody else"
    target.write_bytes(b"precious")
    data_dir.mkdir()
    with RunningBroker(data_dir) as broker:
        broker.stop()
        (data_dir / f"{RUNTIME_FILE}.new").symlink_to(target)
        broker.start()
        assert target.read_bytes() == b"precious"
        assert not (data_dir / RUNTIME_FILE).is_symlink()
