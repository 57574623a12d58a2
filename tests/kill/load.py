# SPDX-License-Identifier: Apache-2.0
"""A load process of the kill rig: lives through all the kills and writes down what it saw.

python -m tests.kill.load ROLE FOLDER SERVICE_URL [LIAR]          (LIAR: a module whose ``lie`` makes us misbehave)
"""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.kill.consuming import run_consumers
from tests.kill.producing import Production
from tests.kill.records import Records, SentRecord, save
from tests.kill.resending import ResendingProduction
from tests.kill.senders import official_client, own_client
from tests.kill.shared_state import SharedState
from tests.kill.topics import (
    CONSUMERS,
    DELIVERY_CONSUMERS,
    DELIVERY_PRODUCERS,
    OFFICIAL_PRODUCERS,
    OWN_PRODUCERS,
    ConsumerPlan,
    ProducerPlan,
)

PRODUCING: Final[dict[str, tuple[ProducerPlan, ...]]] = {
    "own": OWN_PRODUCERS,
    "official": OFFICIAL_PRODUCERS,
    "delivery-producers": DELIVERY_PRODUCERS,
}
CONSUMING: Final[dict[str, tuple[ConsumerPlan, ...]]] = {
    "consumers": CONSUMERS,
    "delivery-consumers": DELIVERY_CONSUMERS,
}
ROLES: Final = (*PRODUCING, *CONSUMING)
LOADS: Final = sum(len(plans) for plans in (*PRODUCING.values(), *CONSUMING.values()))
"""Producers and consumers in all; each has a number below this."""
STATE_FILE: Final = "state"


def main(role: str, folder: Path, service_url: str) -> None:
    """Run one role to its end and leave its records in ``folder``."""
    state = SharedState(folder / STATE_FILE)
    plans = {**PRODUCING, **CONSUMING}
    first = sum(len(plans[before]) for before in ROLES[: ROLES.index(role)])
    if role in PRODUCING:
        records = Records(run_producers(role, service_url, state, first), [])
    else:
        records = Records([], run_consumers(CONSUMING[role], service_url, state, first))
    save(folder / f"{role}.json", records)


def run_producers(role: str, service_url: str, state: SharedState, load: int) -> list[SentRecord]:
    """Run one thread a producer to the end; what each of them did."""
    productions = [
        (ResendingProduction if plan.resends else Production)(plan, state, load + place)
        for place, plan in enumerate(PRODUCING[role])
    ]
    client, open_sender = official_client(service_url) if role == "official" else own_client(service_url)
    with ThreadPoolExecutor(len(productions)) as pool:
        for running in [pool.submit(production.run, open_sender) for production in productions]:
            running.result()
    client.close()
    return [production.record() for production in productions]


if __name__ == "__main__":
    for liar in sys.argv[4:]:
        importlib.import_module(liar).lie()
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
