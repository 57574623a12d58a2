# SPDX-License-Identifier: Apache-2.0
"""Each published hole of Apache Pulsar, tried on this broker and, by the same frames and requests, on a real one.

What Apache Pulsar 4.2.4 lets through is in docs/security.md, hole by hole; a row that is not so any more fails.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from broker_core.base.settings import Settings
from broker_core.testing.sim_disk import SimDisk
from tests.apache_pulsar import secured as apache
from tests.apache_pulsar.start import SHORT_LIVED, TRANSACTIONS, UnavailableError, running
from tests.server import published_holes
from tests.server.credentials import SECRET
from tests.server.published_holes import HOLES, Hole, Place, got_by, prepare
from tests.server.rights_model import SUPERUSER
from tests.server.rights_world import SECURED
from tests.server.server_thread import ServerThread

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
TESTS: Final = Path(__file__).resolve().parents[1]
PROXIES: Final = {"superUserRoles": f"{apache.ADMIN},proxy-root", "proxyRoles": "proxy,proxy-root"}


class Row(NamedTuple):
    """A row of the page: the hole, and what becomes of it here and at Apache Pulsar 4.2.4."""

    number: str
    hole: str
    here: str
    apache: str

    @property
    def let_through(self) -> set[str]:
        """Commands and requests that Apache Pulsar lets through."""
        return set(re.findall(r"`(.+?)`", self.apache))


def rows() -> list[Row]:
    """The table of the page."""
    section = PAGE.read_text(encoding="utf-8").split("## Published holes of Apache Pulsar\n")[1].split("\n## ")[0]
    return [
        Row(*cells) for cells in re.findall(r"^\| (\d{4}-\d+) \| (.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    ]


@pytest.fixture(scope="module")
def disk() -> SimDisk:
    """What our broker keeps."""
    return SimDisk()


@pytest.fixture(scope="module")
def ours(disk: SimDisk) -> Iterator[Place]:
    with ServerThread(disk, Settings(**SECURED)) as server:
        planted = (SECURED["token_secret_key"], base64.b64encode(SECRET).decode())
        yield Place(server.service_url, server.http_url, SECRET, SUPERUSER, planted)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One of their own: with transactions, WebSockets, proxies, and no page for everybody."""
    directory = tmp_path_factory.mktemp("apache") / "pulsar"
    more = {"webSocketServiceEnabled": "true", "authenticateMetricsEndpoint": "true"}
    given = {**apache.prepared(directory), **TRANSACTIONS, **PROXIES, **more}
    headers = {"Authorization": f"Bearer {apache.token(apache.ADMIN)}"}
    try:
        with running(directory, given, SHORT_LIVED, tls=True, headers=headers) as pulsar:
            planted = (given["tokenSecretKey"], apache.token(apache.ADMIN), given["basicAuthConf"])
            yield Place(pulsar.service_url, pulsar.http_url, apache.KEY, apache.ADMIN, planted)
    except UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("hole", HOLES, ids=str)
def test_this_broker_is_free_of_the_hole(ours: Place, disk: SimDisk, hole: Hole) -> None:
    """Everything that the hole gives to others is refused, and nothing is changed."""
    prepare(hole, ours)
    before = disk.fingerprint()
    assert got_by(hole, ours) == set()
    assert disk.fingerprint() == before


@pytest.mark.pulsar
@pytest.mark.parametrize("hole", HOLES, ids=str)
def test_apache_pulsar_has_the_hole_as_the_page_says(theirs: Place, hole: Hole) -> None:
    """It lets through what its row names, no more and no less."""
    prepare(hole, theirs)
    several = [row for row in rows() if row.number == hole.number]
    place = [each for each in HOLES if each.number == hole.number].index(hole)
    assert got_by(hole, theirs) == several[place].let_through


def test_each_way_into_a_hole_has_a_row() -> None:
    """Those that were tried on Apache Pulsar say what it lets through, or that it refuses."""
    tried = [row.number for row in rows() if row.let_through or row.apache == "refuses"]
    assert tried == [hole.number for hole in HOLES]


@pytest.mark.parametrize("number", sorted({row.number for row in rows()}))
def test_each_hole_has_a_test_by_its_number(number: str) -> None:
    """Also those of services that this broker has not: whoever adds one finds what to look at."""
    pages = [path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    pages.append(Path(published_holes.__file__).read_text())
    assert any(number in page or number.replace("-", "_") in page for page in pages)
