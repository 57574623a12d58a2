# SPDX-License-Identifier: Apache-2.0
"""``Gate``: the border that commands and requests pass before a handler sees them, and its entries in the audit log.

A broker without authorization has no gate. The gate knows neither commands nor HTTP; it is told who asks, for what, and
how. An error in a check is not caught here: the command or request fails, and nothing was done.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from broker_core.base.clock import Clock, Timers
from broker_core.base.errors import ConfigError
from broker_core.base.names import NamespaceName
from broker_core.base.policies import Policies
from broker_core.base.settings import Settings
from broker_core.broker.broker import Broker
from broker_core.server.security.audit import AUDIT_FILE, AuditEvent, AuditLog, Verdict
from broker_core.server.security.authorization import UNCHECKED, Authorization, Caller
from broker_core.server.security.identity import Credentials
from broker_core.server.security.rights import Need, Resource

_NOBODY: Final = Caller("")

AUTHENTICATE: Final = "AUTHENTICATE"
"""The method of an entry for credentials that prove nothing; the operation is then the method of authentication."""

_METHOD_CHARACTERS_MAX: Final = 40

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BrokerGrants:
    """The grants that a broker keeps: administrators with its tenants, all others with its namespaces."""

    broker: Broker

    def admins(self, tenant: str) -> Collection[str]:
        return self.broker.namespaces.admins(tenant)

    def policies(self, namespace: NamespaceName) -> Policies:
        return self.broker.policies.of_namespace(namespace)


@dataclass(frozen=True, slots=True)
class Asking:
    """The operation that a client asks for: ``method`` is its wire command, or the HTTP method with the ``path``."""

    address: str
    method: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets clients pass, or says why not."""

    authorization: Authorization
    audit: AuditLog

    def refusal(self, caller: Caller | None, need: Need, resource: Resource, asking: Asking) -> str:
        """Why the client may not, in Pulsar's words; "" if it may."""
        if need.right in UNCHECKED:
            return ""
        reason = self.authorization.refusal(caller, need, resource)
        if reason:
            self.refused(caller, need, resource, asking)
        return reason

    def refused(self, caller: Caller | None, need: Need, resource: Resource, asking: Asking) -> None:
        """Keep a refusal."""
        self._keep("refused", caller, need, resource, asking, need.status)

    def changed(self, caller: Caller | None, need: Need, resource: Resource, asking: Asking, status: int) -> None:
        """Keep a change that was let through, and how it was answered."""
        self._keep("allowed", caller, need, resource, asking, status)

    def not_identified(self, credentials: Credentials, address: str) -> None:
        """Keep that a client has not proved who it is."""
        method = credentials.method[:_METHOD_CHARACTERS_MAX]
        self.audit.record(AuditEvent(verdict="refused", address=address, method=AUTHENTICATE, operation=method))

    def close(self) -> None:
        """The broker stops."""
        self.audit.close()

    def _keep(
        self,
        verdict: Verdict,
        caller: Caller | None,
        need: Need,
        resource: Resource,
        asking: Asking,
        status: int,
    ) -> None:
        who = caller or _NOBODY
        self.audit.record(
            AuditEvent(
                verdict=verdict,
                role=who.role,
                original_role=who.original,
                address=asking.address,
                method=asking.method,
                operation=need.operation,
                resource=str(resource),
                path=asking.path,
                status=status,
            )
        )


def gate_of(settings: Settings, broker: Broker, data_dir: str, clock: Clock, timers: Timers) -> Gate | None:
    """The gate that ``settings`` ask for."""
    if not settings.authorization_enabled:
        return None
    audit = AuditLog(f"{data_dir}/{AUDIT_FILE}", settings.audit_log_max_size_in_mb * _MIB, clock, timers)
    return Gate(Authorization(settings, BrokerGrants(broker)), audit)


def check_settings(settings: Settings) -> None:
    """ConfigError for settings of rights that would protect nothing."""
    if not settings.authorization_enabled:
        return
    if not settings.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled is set, and authenticationEnabled is not: nobody would have a role",
            hint="set authenticationEnabled = true",
        )
    if settings.anonymous_user_role and settings.anonymous_user_role in (
        *settings.super_user_roles,
        *settings.proxy_roles,
    ):
        raise ConfigError(
            f"anonymousUserRole {settings.anonymous_user_role!r} is a superuser or a proxy: everybody would be one",
            hint="choose a role of its own for clients without credentials",
        )
