# SPDX-License-Identifier: Apache-2.0
"""Which settings an administrator may change while the broker runs, and the settings with such changes.

They are those that Apache Pulsar changes at run time and that this broker has and reads each time it needs one.
Values are text, as an administrator types them. Knows neither where they are kept (``policy_book``) nor where
they are used.
Source: Pulsar docs, "Admin API - brokers - dynamic configuration".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from broker_core.base.errors import NotAllowedError
from broker_core.base.settings import Settings

DYNAMIC: Final = (
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "defaultNumPartitions",
    "dispatcherMaxReadBatchSize",
    "dispatcherMaxReadSizeBytes",
    "dispatcherMaxRoundRobinBatchSize",
    "forceDeleteNamespaceAllowed",
    "keySharedLookAheadMsgInReplayThresholdPerConsumer",
    "keySharedLookAheadMsgInReplayThresholdPerSubscription",
    "maxTopicsPerNamespace",
    "subscriptionKeySharedEnable",
    "subscriptionTypesEnabled",
)
"""The names of the settings that may be changed, as files and requests have them."""

_FIELDS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Settings)}


def changed(settings: Settings, values: Mapping[str, str]) -> Settings:
    """``settings`` with ``values``; NotAllowedError for a name that is not dynamic or a value that it cannot have."""
    for name, text in values.items():
        settings = _changed(settings, name, text)
    return settings


def _changed(settings: Settings, name: str, text: str) -> Settings:
    if name not in DYNAMIC:
        raise NotAllowedError(
            f"{name[:80]!r} cannot be changed while the broker runs", hint="set it where the broker is started"
        )
    several = isinstance(getattr(settings, _FIELDS[name]), tuple)
    value = [each.strip() for each in text.split(",")] if several else text
    try:
        read = msgspec.convert({name: value}, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise NotAllowedError(f"{text[:80]!r} is no value for {name}: {error}") from error
    return msgspec.structs.replace(settings, **{_FIELDS[name]: getattr(read, _FIELDS[name])})
