# SPDX-License-Identifier: Apache-2.0
"""``make clients-secure``: the behaviour suite with each kind of access, on our broker and on Apache Pulsar.

Each client comes in by a token over TLS, by its certificate, by a token without TLS and by a password over TLS, and may
do what the suite needs. A behaviour that does not hold on both, and is not listed in exceptions.py, is a fault.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from tests.behaviour.access import SECURED, Kind
from tests.behaviour.comparing import AS_LISTED, ON_BOTH, SERVICES, VERDICTS, examine_all
from tests.behaviour.conftest import CLIENTS, KIND


@dataclass(frozen=True, slots=True)
class Entrant:
    """One client with one kind of access."""

    client: str
    access: Kind

    @property
    def name(self) -> str:
        return f"{self.client} {self.access}"

    @property
    def keyword(self) -> str:
        return " or ".join(f"{service}-{self.access}-{self.client}" for service in SERVICES)

    def environment(self) -> dict[str, str]:
        return {**os.environ, KIND: self.access}


if __name__ == "__main__":
    entrants = [Entrant(client, access) for client in CLIENTS for access in SECURED]
    sys.exit(examine_all(entrants, set(VERDICTS) - {ON_BOTH, AS_LISTED}, __doc__ or "", sys.argv[1:]))
