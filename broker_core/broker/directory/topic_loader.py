# SPDX-License-Identifier: Apache-2.0
"""``TopicLoader``: brings stored topics into memory and lets them go.

A topic is loaded when it is first used and stays loaded until it is unloaded or deleted. What a crash has left to do
comes first: a server does that on a thread of its own (``recover``), and without one it is done when the log is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from broker_core.base.errors import (
    DiskFailedError,
    PersistenceServerError,
    ServerError,
    StorageError,
    TopicNotFoundError,
)
from broker_core.base.names import TopicName
from broker_core.base.settings import Settings
from broker_core.broker.directory.topic_registry import TopicRegistry
from broker_core.broker.policy_book import PolicyBook
from broker_core.broker.topic import Surroundings, Topic, deduplicates
from broker_core.storage.catalogue import TopicRow

OnRecovered: TypeAlias = Callable[[ServerError | None], None]
"""Called when a crash has left nothing to do for a topic; with the error for which it cannot be opened, if any."""

Recover: TypeAlias = Callable[[int, OnRecovered], None]
"""Has the topic of that id recovered."""


def recover_when_opened(_topic_id: int, then: OnRecovered) -> None:
    """The ``Recover`` of a broker without threads: the store recovers a topic when its log is opened."""
    then(None)


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class TopicLoader:
    """Loads the topics of one registry from one store."""

    registry: TopicRegistry
    policies: PolicyBook
    surroundings: Surroundings
    recover: Recover

    def load(self, name: TopicName) -> Topic:
        """The topic, which is in the catalogue; TopicNotFoundError if it is not. PersistenceServerError: the disk does
        not read what a crash has left of it."""
        loaded = self.registry.loaded(name)
        if loaded is not None:
            return loaded
        row = self.registry.row(name)
        if row is None:
            raise TopicNotFoundError(f"{name} does not exist")
        settings = self.policies.settings_of(name)
        try:
            log = self.surroundings.store.open_log(row.id, drained=self._needs_all(row.id, name, settings))
        except DiskFailedError:
            raise  # the broker stops
        except StorageError as error:
            raise PersistenceServerError(error.message, hint=error.hint) from error
        try:
            topic = Topic(
                name,
                row.id,
                log,
                self.surroundings,
                settings=settings,
                quotas=self.policies.quotas_of(name),
                unload=self.unload,
            )
        except ServerError:
            log.close()
            raise
        self.registry.add_loaded(topic)
        return topic

    def _needs_all(self, topic_id: int, name: TopicName, settings: Settings) -> bool:
        """Whether the topic cannot be loaded before all that was sent to it is written."""
        return deduplicates(name, settings) or self.surroundings.transactions.touches(topic_id)

    def used_topics(self, name: TopicName) -> list[Topic]:
        """The topic of that name, loaded; of a partitioned one those of its partitions that were ever used."""
        return [self.load(each) for each in self.registry.names_of(name) if self.registry.row(each) is not None]

    def unload(self, name: TopicName) -> None:
        """Disconnect all clients of a topic and let it go from memory. Nothing happens if it is not loaded."""
        topic = self.registry.remove_loaded(name)
        if topic is not None:
            topic.close()

    # -- when a topic can be loaded

    def when_loadable(self, name: TopicName, then: OnRecovered) -> None:
        """Call ``then`` once the topic can be loaded, usually at once: a crash has left nothing to do, and where the
        topic must know what was sent to it before, what an unload has left to be written is written."""

        def needs_all() -> bool:
            row = self.registry.row(name)
            return row is not None and self._needs_all(row.id, name, self.policies.settings_of(name))

        self._when_recovered(name, then, drained=needs_all)

    def when_ready(self, name: TopicName, then: OnRecovered) -> None:
        """As ``when_loadable``, and what an unloaded topic has left to be written is written in any case."""
        self._when_recovered(name, then, drained=lambda: True)

    def _when_recovered(self, name: TopicName, then: OnRecovered, drained: Callable[[], bool]) -> None:
        """``drained``: whether what is left to be written is waited for, asked when the topic is recovered."""

        def recovered(error: ServerError | None) -> None:
            if error is None and drained():
                self.when_drained(name, lambda: then(None))
            else:
                then(error)

        row = self._row_of_unloaded(name)
        if row is None:
            recovered(None)
        else:
            self.recover(row.id, recovered)

    def when_drained(self, name: TopicName, then: Callable[[], None]) -> None:
        """Call ``then`` once nothing is left to be written of a topic that was unloaded."""
        row = self._row_of_unloaded(name)
        if row is None:
            then()
        else:
            self.surroundings.store.when_drained(row.id, then)

    def _row_of_unloaded(self, name: TopicName) -> TopicRow | None:
        return None if self.registry.loaded(name) is not None else self.registry.row(name)
