# SPDX-License-Identifier: Apache-2.0
"""The options that say what happens when messages are gone or cannot be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from broker_core.base.errors import ConfigError
from pulsarish_spark.options.option import Option, mounted_path, one_of

OnLoss = Literal["fail", "warn", "quarantine"]

_WORDS: Final = {"true": "fail", "false": "warn", "fail": "fail", "warn": "warn", "quarantine": "quarantine"}

_QUARANTINE: Final = "quarantineDirectory"

LOSING: Final = (
    Option(
        "failOnDataLoss",
        one_of(_WORDS),
        "false",
        "What to do when messages that should be read cannot be decoded, or are gone, or may be, as the checkpoint, "
        "the subscription and the broker disagree: true or fail (default); false or warn: one warning, and go on; "
        "quarantine: the same, and what is missing is written to a file first ([losses.md](losses.md)).",
        fills="on_loss",
    ),
    Option(
        _QUARANTINE,
        mounted_path,
        "/var/lib/losses",
        "Folder of these files, which the driver and all executors share; one for each query. Needed for quarantine.",
        fills="quarantine_directory",
    ),
)


def check_losing(given: Mapping[str, Any]) -> None:
    """ConfigError if only one of quarantine and its folder is given."""
    directory = given.get(_QUARANTINE, "")
    wanted = given.get("failOnDataLoss") == "quarantine"
    if wanted and not directory:
        raise ConfigError(
            "failOnDataLoss=quarantine, and no quarantineDirectory says where to",
            hint=f'give a folder: .option("{_QUARANTINE}", "/var/lib/losses")',
        )
    if directory and not wanted:
        raise ConfigError(
            f"{_QUARANTINE} means nothing without quarantine", hint='add .option("failOnDataLoss", "quarantine")'
        )
