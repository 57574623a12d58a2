# SPDX-License-Identifier: Apache-2.0
"""Whether service URL and admin address are one broker, asked of both: a lookup of one topic names its broker.

Without that check the admin port of another broker would answer, and delete there. The topic need not exist: nothing
is stored under a non-persistent name, and a lookup makes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core.base.errors import (
    AuthorizationError,
    ConfigError,
    ConnectionLostError,
    OperationTimeoutError,
    PulsarishError,
    TopicNotFoundError,
)
from broker_core.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, TopicName
from broker_core.client.connecting.service_url import BrokerAddress, parse_service_url

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.client.admin import AdminApi

_DEFAULT: Final = NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE)
_NOTHING: Final = "which-broker"
"""The name of the topic that is looked up."""

_HINT: Final = "name its admin address with --http-url http://HOST:PORT, or its data directory with --data-dir"


def check_broker(client: Client, admin: AdminApi | None, http_url: str, namespace: NamespaceName | None) -> None:
    """ConnectionLostError if nobody listens at the service URL; ConfigError unless ``admin`` is known to be of the
    broker that does. ``admin`` None: that is the user's word. ``namespace``: one that this client may ask about."""
    asked = [_DEFAULT] if namespace is None else [namespace, _DEFAULT]
    found = next(filter(None, (_looked_up(client, each) for each in asked)), None)
    if admin is not None and (doubt := _doubt(client, admin, found)):
        what = f"the admin REST of {client.config.service_url} is not known to be at {http_url}"
        raise ConfigError(f"{what}: {doubt}", hint=_HINT)


def _looked_up(client: Client, namespace: NamespaceName) -> tuple[TopicName, BrokerAddress] | None:
    """A topic of ``namespace`` and its broker; None if the client may not know it, or the namespace does not exist."""
    topic = TopicName.parse(f"non-persistent://{namespace}/{_NOTHING}")
    try:
        return topic, client.broker_of(str(topic))
    except (AuthorizationError, TopicNotFoundError):
        return None


def _doubt(client: Client, admin: AdminApi, found: tuple[TopicName, BrokerAddress] | None) -> str:
    """Why ``admin`` may be another broker than the one that ``client`` has found; "": it is the same."""
    if found is None:
        return "the broker tells this client in no namespace what it calls itself"
    topic, named = found
    try:
        answer = admin.broker_of(topic, tls=named.tls)
    except (ConnectionLostError, OperationTimeoutError):
        raise
    except PulsarishError as error:
        return f"who answers there does not tell what it calls itself ({error.message})"
    own = _own_address(named)
    if own != _address_in(answer):
        return f"another one answers there, which calls itself {answer or 'nothing'} and not {own}"
    return f"it calls itself {own}, as every broker with that port in a container" if _is_elsewhere(client, own) else ""


def _own_address(named: BrokerAddress) -> BrokerAddress:
    """The name that a broker gives itself, also where clients are to reach it through the service URL."""
    scheme = "pulsar+ssl" if named.tls else "pulsar"
    return parse_service_url(f"{scheme}://{named.proxied_for}")[0] if named.proxied_for else named


def _address_in(answer: str) -> BrokerAddress | None:
    try:
        return parse_service_url(answer)[0]
    except ConfigError:
        return None


def _is_elsewhere(client: Client, own: BrokerAddress) -> bool:
    """Whether a broker names another port of this machine than it was asked at: its port is mapped, as those of
    containers are, and the brokers in them call themselves alike."""
    asked = parse_service_url(client.config.service_url)
    return own.is_this_machine and own.port not in {each.port for each in asked}
