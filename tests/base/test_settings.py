# SPDX-License-Identifier: Apache-2.0
"""The declaration of settings itself."""

from typing import get_args

import msgspec

from broker_core.base.settings import DEFAULT_SETTINGS, Settings


def test_every_setting_is_documented_and_named_as_in_pulsar() -> None:
    """Each field has a description, and its outside name is the camel case of the inside one."""
    for field in msgspec.structs.fields(Settings):
        assert isinstance(get_args(field.type)[-1], str), field.name
        assert field.encode_name.lower() == field.name.replace("_", "")


def test_the_defaults_are_pulsars() -> None:
    """Semantics section 8: spot values that clients rely on."""
    assert DEFAULT_SETTINGS.max_message_size == 5 * 1024 * 1024
    assert DEFAULT_SETTINGS.managed_ledger_max_entries_per_ledger == 50_000
    assert DEFAULT_SETTINGS.active_consumer_failover_delay_time_millis == 1000
    assert DEFAULT_SETTINGS.durability == "sync"
