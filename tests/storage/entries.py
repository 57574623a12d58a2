# SPDX-License-Identifier: Apache-2.0
"""Entries as they travel, made without the wire layer: storage looks at nothing but the checksum."""

import google_crc32c


def entry(payload: bytes) -> bytes:
    """A sealed entry with empty metadata."""
    rest = bytes(4) + payload
    checksum: int = google_crc32c.value(rest)
    return b"\x0e\x01" + checksum.to_bytes(4, "big") + rest
