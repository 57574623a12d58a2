# SPDX-License-Identifier: Apache-2.0
"""``KeySharedPolicy``: how a consumer wants the keys of a subscription to be shared out.

With ``mode`` auto_split the broker decides which keys a consumer gets; with sticky the consumer brings ranges of
slots. The slot of a key is murmur3(key) modulo 65,536. On an Exclusive subscription sticky ranges are a filter: what is
outside of them is not delivered and counts as acknowledged. Source: Pulsar docs, "Key_Shared"; semantics 2.2.4, 2.6 to
2.9.
"""

from __future__ import annotations

from typing import Final, Literal

from broker_core.base.errors import ConfigError
from broker_core.client.settings.checked_settings import CheckedSettings
from broker_core.wire.proto import pulsar_api_pb2 as pb

KeySharedMode = Literal["auto_split", "sticky"]

SLOT_MAX: Final = 65_535


class KeySharedPolicy(CheckedSettings, frozen=True, kw_only=True):
    """``sticky_ranges``: pairs of first and last slot, both included, each 0 to 65535, without overlaps.

    ``allow_out_of_order_delivery``: a new consumer gets its keys at once, though another one may still be busy with
    older messages of them.
    """

    mode: KeySharedMode = "auto_split"
    sticky_ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order_delivery: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mode == "sticky") is not bool(self.sticky_ranges):
            raise ConfigError(
                f"key_shared mode {self.mode} has {len(self.sticky_ranges)} sticky ranges",
                hint="give sticky_ranges if and only if the mode is sticky",
            )
        below = -1
        for start, end in sorted(self.sticky_ranges):
            if not 0 <= start <= end <= SLOT_MAX:
                raise ConfigError(
                    f"sticky range ({start}, {end}) is no range of slots",
                    hint=f"give (first, last) with first not above last, both from 0 to {SLOT_MAX}",
                )
            if start <= below:
                raise ConfigError(
                    f"sticky range ({start}, {end}) overlaps with another one", hint="both ends are included"
                )
            below = end

    def check_type(self, subscription_type: str) -> None:
        """ConfigError if a subscription of that type has no use for this policy."""
        if subscription_type == "key_shared" or (subscription_type == "exclusive" and self.mode == "sticky"):
            return
        raise ConfigError(
            f"key_shared_policy does not go with the subscription type {subscription_type!r}",
            hint="use the type key_shared, or exclusive with sticky ranges as a filter",
        )

    def meta(self) -> pb.KeySharedMeta:
        """The policy as a field of the SUBSCRIBE command."""
        return pb.KeySharedMeta(
            keySharedMode=self.mode.upper(),
            hashRanges=[pb.IntRange(start=start, end=end) for start, end in self.sticky_ranges],
            allowOutOfOrderDelivery=self.allow_out_of_order_delivery,
        )
