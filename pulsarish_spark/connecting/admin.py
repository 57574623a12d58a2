# SPDX-License-Identifier: Apache-2.0
"""The admin REST of a broker, where its address is known: the option ``admin.url``, or that of the embedded broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsarish_spark.connecting import embedded
from pulsarish_spark.connecting.connection import Address

if TYPE_CHECKING:
    from broker_core.client.admin import AdminApi

ADMIN_TIMEOUT_S: Final = 10.0
"""How long to wait for an answer: nothing that is asked here is worth holding a query up for longer."""


def open_admin(address: Address) -> AdminApi | None:
    """A connection to it with the credentials of the client, to be used as a context manager; None: nobody says where
    it is."""
    from broker_core.client import ClientConfig
    from broker_core.client.admin import AdminApi

    directory = address.embedded_here
    url = address.admin_url if directory is None else embedded.ensure(directory).http_url
    if not url:
        return None
    config = ClientConfig(service_url=address.resolve(), **address.security.client_options())
    return AdminApi(url, timeout_s=ADMIN_TIMEOUT_S, authentication=config.identity, tls=config.tls)
