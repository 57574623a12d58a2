# SPDX-License-Identifier: Apache-2.0
"""Files of a data directory: for their owner alone, never through a link, never anything but a file."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker_core.base.private_files import FILE_MODE, NotAFileError, make_directory, open_to_others, private_opener


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


def _link_to_a_file(path: Path) -> None:
    path.with_name("elsewhere").write_text("mine")
    _link(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


NO_FILES: Final[dict[str, Callable[[Path], None]]] = {
    "a symbolic link": _link_to_a_file,
    "a symbolic link to nowhere": _link,
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a socket": _socket,
}


@pytest.fixture
def generous() -> Iterator[None]:
    """A user whose new files everybody may read and write."""
    usual = os.umask(0)
    yield
    os.umask(usual)


@pytest.mark.parametrize("mode", ["rb", "ab", "wb", "r+b"])
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_at_once(kind: str, mode: str, tmp_path: Path) -> None:
    """Reading, appending and overwriting: the error names the path and what is there, and nothing is touched."""
    path = tmp_path / "wanted"
    NO_FILES[kind](path)
    what = kind.removesuffix(" to nowhere")
    with (
        pytest.raises(NotAFileError, match=f"{path} is {what} instead of a file"),
        open(path, mode, opener=private_opener),
    ):
        pass
    elsewhere = tmp_path / "elsewhere"
    assert elsewhere.exists() == (kind == "a symbolic link")
    assert not elsewhere.exists() or elsewhere.read_text() == "mine"


@pytest.mark.usefixtures("generous")
def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask allows."""
    with open(tmp_path / "new", "xb", opener=private_opener):
        pass
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == FILE_MODE


def test_what_others_may_use_is_found(tmp_path: Path) -> None:
    """The folder itself and what lies in it, each with its mode; a link has no mode of its own."""
    tmp_path.chmod(0o750)
    for name, mode in (("private", 0o600), ("readable", 0o604), ("writable", 0o620)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("private")
    assert open_to_others(str(tmp_path)) == [
        f"{tmp_path} (mode 0750)",
        f"{tmp_path / 'readable'} (mode 0604)",
        f"{tmp_path / 'writable'} (mode 0620)",
    ]


def test_each_folder_that_is_made_is_synced_in_the_one_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reliability row 2: a power loss does not take the data directory, nor a folder that was made for it."""
    synced: list[int] = []

    def fsync(fd: int, known: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.fstat(fd).st_ino)
        known(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    make_directory(str(tmp_path / "a" / "b" / "data"))
    folders = [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    assert synced == [folder.stat().st_ino for folder in folders]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders[1:]] == [0o700, 0o700]
    synced.clear()
    make_directory(str(tmp_path / "a" / "b" / "data"))
    assert synced == [folders[-1].stat().st_ino]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """What is in its place is named."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(OSError, match="file"):
            make_directory(str(path))
