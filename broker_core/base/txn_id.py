# SPDX-License-Identifier: Apache-2.0
"""``TxnId``: the name of a transaction, as Pulsar gives it.

No transaction can be opened yet. What names one is refused where it would be carried out: a message by its producer.
"""

from __future__ import annotations

from typing import NamedTuple


class TxnId(NamedTuple):
    """``most_bits`` is the transaction coordinator, ``least_bits`` the number that it gave. Both are signed."""

    most_bits: int
    least_bits: int
