# SPDX-License-Identifier: Apache-2.0
"""A load process of the kill rig: lives through all the kills and writes down what it saw.

python -m tests.kill.load ROLE FOLDER SERVICE_URL          (ROLE: own, official or consumers)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.kill.consuming import run_consumers
from tests.kill.producing import run_producers
from tests.kill.records import Records, save
from tests.kill.shared_state import SharedState
from tests.kill.topics import CONSUMERS, OFFICIAL_PRODUCERS, OWN_PRODUCERS

ROLES: Final = ("own", "official", "consumers")
STATE_FILE: Final = "state"


def main(role: str, folder: Path, service_url: str) -> None:
    """Run one role to its end and leave its records in ``folder``."""
    state = SharedState(folder / STATE_FILE)
    if role == "own":
        records = Records(run_producers(OWN_PRODUCERS, service_url, state, 0, official=False), [])
    elif role == "official":
        first = len(OWN_PRODUCERS)
        records = Records(run_producers(OFFICIAL_PRODUCERS, service_url, state, first, official=True), [])
    else:
        first = len(OWN_PRODUCERS) + len(OFFICIAL_PRODUCERS)
        records = Records([], run_consumers(CONSUMERS, service_url, state, first))
    save(folder / f"{role}.json", records)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
