# SPDX-License-Identifier: Apache-2.0
"""The profiles of ``conf/``, made from the declaration of the settings. Pure text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Final

from broker_core.base.accepted_values import text_of
from broker_core.cli.settings_sources import Setting, declared

_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Profile:
    """One file of ``conf/``: what it is for, and what it sets, each with the reason."""

    name: str
    purpose: str
    values: dict[str, tuple[object, str]]


PROFILES: Final = (
    Profile(
        "development",
        "For a laptop or a test run: quick receipts, quick clean-up, a broker that leaves when nobody uses it. "
        "A crash of the machine may lose the last second of confirmed messages; a killed broker loses none.",
        {
            "durability": ("async", "receipts do not wait for the disk"),
            "retentionCheckIntervalInSeconds": (10, "see the effect of acknowledgements on disk soon"),
            "activeConsumerFailoverDelayTimeMillis": (100, "tests of failover do not want to wait a second"),
            "idleStopSeconds": (3600, "a forgotten broker stops by itself after an hour"),
        },
    ),
    Profile(
        "durable",
        "For data that must not be lost: a receipt means that the disk has it. Most of this is the default, said aloud "
        "so that a later change of a default cannot weaken it.",
        {
            "durability": ("sync", "a receipt is sent after fdatasync has returned"),
            "retainWithoutSubscription": (True, "data that nobody subscribed to yet stays"),
            "autoSkipNonRecoverableData": (
                False,
                "a subscription stops at a damaged entry rather than passing it in silence",
            ),
            "allowAutoTopicCreation": (False, "a misspelt topic is an error, not a new topic"),
            "idleStopSeconds": (0, "runs until it is stopped"),
        },
    ),
    Profile(
        "cluster",
        "For a Spark cluster whose worker processes run on this machine and read and write many partitions at once. "
        "The broker listens on the loopback address only, so workers on other machines cannot reach it yet.",
        {
            "durability": ("sync", "a receipt is sent after fdatasync has returned"),
            "allowAutoTopicCreationType": ("partitioned", "one Spark task for each partition"),
            "defaultNumPartitions": (4, "a start; name the number with: pulsarish topic create NAME -p N"),
            "managedLedgerCacheSizeMbytes": (
                256,
                "micro-batches read what was just written; let them find it in memory",
            ),
            "maxMessagePublishBufferSizeInMB": (256, "many tasks publish at once while the disk syncs"),
            "diskReserveMbytes": (1024, "what may wait must have room when the disk fills up"),
            "writeBufferHighBytes": (32 * 1024 * 1024, "readers take large steps"),
            "dispatcherMaxReadSizeBytes": (16 * 1024 * 1024, "the same on the broker's side"),
            "idleStopSeconds": (0, "runs until it is stopped"),
        },
    ),
)


def profile_toml(profile: Profile) -> str:
    """The file ``conf/<name>.toml``: first what the profile sets, then every other setting, commented out."""
    lines = [*_comment(profile.purpose), "#", f"#   pulsarish serve --config conf/{profile.name}.toml", ""]
    for name, (value, reason) in profile.values.items():
        lines += [*_comment(f"{reason[0].upper()}{reason[1:]}."), f"{name} = {text_of(value)}", ""]
    lines += [f"# {'-' * 20} everything else, with its default {'-' * 20}", ""]
    for setting in declared().values():
        if setting.name not in profile.values:
            lines += [*_comment(_sentence(setting)), f"#{setting.name} = {text_of(setting.default)}", ""]
    return "# SPDX-License-Identifier: Apache-2.0\n" + "\n".join(lines[:-1]) + "\n"


def _sentence(setting: Setting) -> str:
    return f"{setting.description} Takes {setting.accepts}."


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
