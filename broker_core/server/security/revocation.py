# SPDX-License-Identifier: Apache-2.0
"""``Revocation``: closes the producers, consumers and watches that stood on a right which was taken away.

A right is checked when a producer, consumer or watch is opened, so a change of grants asks again for each of the tenant
that is open. In turns: there may be very many. A client whose producer or consumer is closed connects again, and is
refused then. Source: Pulsar docs, "Security - Authorization".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from broker_core.base.turns import Chore, Kind, Turns
from broker_core.server.security.authorization import Authorization
from broker_core.server.security.rights import Resource, Right
from broker_core.server.session import Session


class Revocation:
    """Asks again for all that is open. ``sessions``: those of the clients that are connected now."""

    def __init__(self, authorization: Authorization, sessions: Callable[[], Iterable[Session]], turns: Turns) -> None:
        self._authorization = authorization
        self._sessions = sessions
        self._turns = turns

    def rights_changed(self, tenant: str) -> None:
        """The grants of a tenant, or its administrators, have changed."""
        self._turns.later(Chore(Kind.REQUESTS, self._steps(tenant)))

    def _steps(self, tenant: str) -> Iterator[None]:
        for session in list(self._sessions()):
            yield from self._end_consumers(session, tenant)
            yield from self._end_producers(session, tenant)
            for number, watch in list(session.watches.items()):
                resource = Resource.of_namespace(watch.namespace)
                if resource.tenant == tenant and not self._allows(session, Right.USE_NAMESPACE, resource):
                    session.end_watch(number)
            yield

    def _end_consumers(self, session: Session, tenant: str) -> Iterator[None]:
        for channel in list(session.consumers.values()):
            resource = Resource.of_topic(channel.topic, channel.consumer.subscription.name)
            if resource.tenant == tenant and not self._allows(session, Right.CONSUME, resource):
                session.node.acks.apply()
                channel.end()
            yield

    def _end_producers(self, session: Session, tenant: str) -> Iterator[None]:
        for channel in list(session.producers.values()):
            resource = Resource.of_topic(channel.topic)
            if resource.tenant == tenant and not self._allows(session, Right.PRODUCE, resource):
                channel.end()
            yield

    def _allows(self, session: Session, right: Right, resource: Resource) -> bool:
        return self._authorization.allows(session.caller, right, resource)
