# SPDX-License-Identifier: Apache-2.0
"""What the logs of one store share. Built by ``Store``; holds no logic."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_core.base.clock import Clock
from broker_core.base.settings import Settings
from broker_core.storage.commit import GroupCommit
from broker_core.storage.disk import Disk
from broker_core.storage.handles import HandlePool
from broker_core.storage.ledger_index import IndexCache
from broker_core.storage.metadata import Metadata
from broker_core.storage.quarantine import Quarantine
from broker_core.storage.tail_cache import TailCache


@dataclass(slots=True)
class StoreContext:
    """The parts of an open store. ``ledgers_missing``: ids in the catalogue whose files were not there at start."""

    disk: Disk
    directory: str
    clock: Clock
    settings: Settings
    handles: HandlePool
    commits: GroupCommit
    metadata: Metadata
    tail_cache: TailCache
    quarantine: Quarantine
    indexes: IndexCache = field(default_factory=IndexCache)
    ledgers_missing: set[int] = field(default_factory=set)
