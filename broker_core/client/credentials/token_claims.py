# SPDX-License-Identifier: Apache-2.0
"""What a token says of its own end, for the words of an error: a broker only says that it does not accept it.

Reads the expiry of a JWT without verifying anything: nothing is decided by it. A token of another form says nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime

from broker_core.base.clock import Clock, SystemClock
from broker_core.base.secret import Secret


def expiry_words(token: Secret, clock: Clock | None = None) -> str:
    """``it expired at 2026-01-01 00:00:00 UTC``; "" if it has not, or does not tell."""
    expiry_s = _expiry_s(token.reveal())
    if expiry_s is None or expiry_s * 1000 > (clock or SystemClock()).now_ms():
        return ""
    return f"it expired at {datetime.fromtimestamp(expiry_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _expiry_s(token: str) -> int | None:
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expiry = claims["exp"]
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
    return int(expiry) if isinstance(expiry, int | float) and 0 < expiry < 2**32 else None
