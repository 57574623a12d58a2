# SPDX-License-Identifier: Apache-2.0
"""The declaration of settings itself."""

import msgspec

from broker_core.base.settings import DEFAULT_SETTINGS, Settings


def test_every_setting_is_documented_and_named_as_in_pulsar() -> None:
    """Each field has a description, and its outside name is the camel case of the inside one."""
    for field in msgspec.structs.fields(Settings):
        described = msgspec.inspect.type_info(field.type)
        assert isinstance(described, msgspec.inspect.Metadata), field.name
        assert (described.extra_json_schema or {}).get("description") or _description(field.type), field.name
        assert field.encode_name.lower() == field.name.replace("_", "")


def _description(annotated: object) -> str:
    metas = getattr(annotated, "__metadata__", ())
    return "".join(m.description or "" for m in metas if isinstance(m, msgspec.Meta))


def test_the_defaults_are_pulsars() -> None:
    """Semantics section 8: spot values that clients rely on."""
    assert DEFAULT_SETTINGS.max_message_size == 5 * 1024 * 1024
    assert DEFAULT_SETTINGS.managed_ledger_max_entries_per_ledger == 50_000
    assert DEFAULT_SETTINGS.active_consumer_failover_delay_time_millis == 1000
    assert DEFAULT_SETTINGS.durability == "sync"
