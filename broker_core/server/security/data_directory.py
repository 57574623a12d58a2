# SPDX-License-Identifier: Apache-2.0
"""The provider that knows the owner of the data directory: whoever can read its token may read all else there, too."""

from __future__ import annotations

import hmac

from broker_core.base.secret import Secret
from broker_core.server.security.identity import AuthenticationFailedError, Credentials, Identity, Provider

OWNER_ROLE = "owner"
"""The name of the owner in logs; what the owner may do comes from ``Identity.is_owner``, not from this."""


class OwnersToken:
    """The method "token" of a broker: the owner's, and every other token by ``others``, if tokens are issued."""

    def __init__(self, token: Secret, others: Provider | None) -> None:
        self._token = token.reveal().encode()
        self._others = others

    def identify(self, credentials: Credentials) -> Identity:
        """The owner, or whom ``others`` know. AuthenticationFailedError: nobody."""
        if hmac.compare_digest(credentials.data, self._token):
            return Identity(OWNER_ROLE, is_owner=True)
        if self._others is None:
            raise AuthenticationFailedError("the token is not that of the data directory")
        return self._others.identify(credentials)
