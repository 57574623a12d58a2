# SPDX-License-Identifier: Apache-2.0
"""Entries as they travel, made without the wire layer: storage looks at nothing but the checksum."""

import google_crc32c


def entry(payload: bytes) -> bytes:
    """A sealed entry with empty metadata."""
    rest = bytes(4) + payload
    return b"\x0e\x01" + google_crc32c.value(rest).to_bytes(4, "big") + rest
