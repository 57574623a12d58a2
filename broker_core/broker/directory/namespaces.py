# SPDX-License-Identifier: Apache-2.0
"""``Namespaces``: which tenants and namespaces exist. ``public/default`` is made at the first start.

The policies of a namespace are kept by ``policy_book``, its topics by ``topic_registry``.
Source: Pulsar docs, "Multi tenancy"; semantics 1.1.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.base.errors import InvalidTopicNameError, NotAllowedError, TopicNotFoundError
from broker_core.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, check_tenant_name, shown_name
from broker_core.storage.catalogue import Catalogue


class NamespaceFullError(NotAllowedError):
    """A namespace has as many topics as it may have."""


class Namespaces:
    """Tenants and their namespaces, kept in memory and in the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._tenants = catalogue.tenants.all()
        self._namespaces = set(catalogue.namespaces.all())
        if not self._tenants:
            with catalogue.transaction():
                self.create_tenant(DEFAULT_TENANT)
                self.create(NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE))

    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def create_tenant(self, tenant: str, config: Mapping[str, Any] | None = None) -> None:
        """Make a tenant; NotAllowedError if it exists."""
        try:
            check_tenant_name(tenant)
        except InvalidTopicNameError as error:
            raise NotAllowedError(error.message, hint=error.hint) from error
        if tenant in self._tenants:
            raise NotAllowedError(f"tenant {tenant!r} exists already")
        self._catalogue.tenants.put(tenant, config or {})
        self._tenants[tenant] = dict(config or {})

    def tenant(self, name: str) -> Mapping[str, Any]:
        """The configuration of an existing tenant."""
        return self._tenants[name]

    def change_tenant(self, name: str, config: Mapping[str, Any]) -> None:
        """Replace the configuration of a tenant; TopicNotFoundError if there is no such tenant."""
        self._require_tenant(name)
        self._catalogue.tenants.put(name, config)
        self._tenants[name] = dict(config)

    def namespaces(self, tenant: str) -> list[NamespaceName]:
        """The namespaces of one tenant; TopicNotFoundError if there is no such tenant."""
        self._require_tenant(tenant)
        found = (NamespaceName.parse(name) for name in self._namespaces)
        return sorted(name for name in found if name.tenant == tenant)

    def delete_tenant(self, tenant: str) -> None:
        """Forget a tenant; NotAllowedError while it has namespaces, TopicNotFoundError if there is no such tenant."""
        left = self.namespaces(tenant)
        if left:
            raise NotAllowedError(f"tenant {tenant!r} has {len(left)} namespaces", hint="delete them first")
        self._catalogue.tenants.delete(tenant)
        del self._tenants[tenant]

    def create(self, name: NamespaceName) -> None:
        """Make a namespace of an existing tenant; NotAllowedError if it exists."""
        self._require_tenant(name.tenant)
        if str(name) in self._namespaces:
            raise NotAllowedError(f"namespace {str(name)!r} exists already")
        self._catalogue.namespaces.put(str(name), {})
        self._namespaces.add(str(name))

    def delete(self, name: NamespaceName) -> None:
        """Forget a namespace that holds no topics any more; TopicNotFoundError if there is no such namespace."""
        self.require(name)
        self._catalogue.namespaces.delete(str(name))
        self._namespaces.discard(str(name))

    def exists(self, name: NamespaceName) -> bool:
        return str(name) in self._namespaces

    def require(self, name: NamespaceName) -> None:
        """TopicNotFoundError unless the namespace exists."""
        if not self.exists(name):
            raise TopicNotFoundError(
                f"namespace {str(name)!r} does not exist",
                hint=f"create it first, or use {DEFAULT_TENANT}/{DEFAULT_NAMESPACE}",
            )

    def _require_tenant(self, tenant: str) -> None:
        if tenant not in self._tenants:
            raise TopicNotFoundError(f"tenant {shown_name(tenant)} does not exist", hint="create it first")
