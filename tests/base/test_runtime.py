# SPDX-License-Identifier: Apache-2.0
"""The default data directory and the runtime file."""

from pathlib import Path

import msgspec
import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.runtime import RuntimeInfo, checked_data_dir, default_data_dir


@pytest.mark.parametrize(
    ("env", "directory"),
    [
        ({"PULSARISH_DATA_DIR": "/d", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/d"),
        ({"XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/pulsarish"),
        ({"XDG_DATA_HOME": "", "HOME": "/h"}, "/h/.local/share/pulsarish"),
    ],
)
def test_the_nearest_name_of_the_data_directory_wins(env: dict[str, str], directory: str) -> None:
    """Our own variable, then the data home, then the home; empty counts as unset."""
    assert default_data_dir(env).as_posix() == directory


def test_without_a_home_the_error_names_the_variable_to_set() -> None:
    """A service account may have no home at all."""
    with pytest.raises(ConfigError, match="PULSARISH_DATA_DIR"):
        default_data_dir({})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("s3://bucket/data", "name a directory"),
        ("hdfs:///data", "name a directory"),
        ("file:///var/lib/data", "write the path alone: /var/lib/data"),
        ("file:/var/lib/data", "write the path alone: /var/lib/data"),
    ],
)
def test_a_url_is_no_data_directory(name: str, hint: str) -> None:
    """A folder called s3: was made beside the program, and the data was in it."""
    with pytest.raises(ConfigError, match="is a URL") as refused:
        checked_data_dir(name)
    assert hint in str(refused.value)
    with pytest.raises(ConfigError, match="is a URL"):
        default_data_dir({"PULSARISH_DATA_DIR": name})


@pytest.mark.parametrize("name", ["/d", "d", "~/d", "a:b", "./a:/b", "C:/data", "C:\\data"])
def test_a_path_is_one(name: str) -> None:
    """Also with a colon, and with a drive."""
    assert checked_data_dir(name) == name


def test_the_runtime_file_comes_back_and_half_a_file_does_not() -> None:
    """A reader that meets a torn or foreign file sees no broker; fields of a newer version do no harm."""
    info = RuntimeInfo(pid=7, service_url="pulsar://127.0.0.1:1", http_url="http://127.0.0.1:2", version="0.1.0")
    content = info.encode()
    assert RuntimeInfo.decode(content, 5) == info
    assert RuntimeInfo.decode(content[:20], 5) is None
    assert RuntimeInfo.decode(b'{"pid": "seven"}', 5) is None
    assert RuntimeInfo.decode(_Newer(**msgspec.structs.asdict(info)).encode(), 5) == info


class _Newer(RuntimeInfo, frozen=True, kw_only=True):
    """What a newer version may write."""

    extra: int = 1


def test_a_damaged_runtime_file_speaks_of_no_broker() -> None:
    """Reliability row 5: one bit in the port names another broker, which would get this one's messages."""
    info = RuntimeInfo(pid=7, service_url="pulsar://127.0.0.1:6650", http_url="http://127.0.0.1:2", version="0.1.0")
    content = info.encode()
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        assert RuntimeInfo.decode(bytes(damaged), 5) is None


def test_a_copy_of_the_runtime_file_speaks_of_no_broker() -> None:
    """It came with the copy of a data directory, and names the broker of the original."""
    info = RuntimeInfo(
        pid=7, service_url="pulsar://127.0.0.1:1", http_url="http://127.0.0.1:2", version="0.1.0", file_number=5
    )
    assert RuntimeInfo.decode(info.encode(), 5) == info
    assert RuntimeInfo.decode(info.encode(), 6) is None


def test_a_file_that_is_replaced_while_it_is_read_is_still_taken_for_what_it_was(tmp_path: Path) -> None:
    """A broker that stops and the next one that starts do so at any moment: it is no copy, and a broker ran."""
    file, successor = tmp_path / "broker.json", tmp_path / "broker.json.new"
    file.touch()
    info = RuntimeInfo(
        pid=7,
        service_url="pulsar://127.0.0.1:1",
        http_url="http://127.0.0.1:2",
        version="0.1.0",
        file_number=file.stat().st_ino,
    )
    file.write_bytes(info.encode())
    with file.open("rb") as opened:
        successor.write_bytes(b"{}")
        successor.replace(file)
        assert RuntimeInfo.read(opened) == info
