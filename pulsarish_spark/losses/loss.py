# SPDX-License-Identifier: Apache-2.0
"""``failOnDataLoss``: what is done when messages between two offsets are not there any more, or cannot be decoded.

``fail``: DataLossError, which fails the query. ``warn``: one warning, and reading goes on with what is there.
``quarantine``: the same, behind a file that says what is missing. Finding the loss is the business of those who read
(``range_reader``, ``position_driver``); what it says is ``lost``'s.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker_core.base.errors import PulsarishError
from pulsarish_spark.losses.lost import Loss
from pulsarish_spark.losses.quarantine import QuarantineFolder

if TYPE_CHECKING:
    from pulsarish_spark.options import ReadOptions

logger = logging.getLogger(__name__)

_HINT: Final = (
    "retention or somebody deleted them; restore them, start a new checkpoint, "
    'or go on without them: .option("failOnDataLoss", "false")'
)

_UNDECODABLE_HINT: Final = (
    "no restart helps, as the entry stays as it is; let a client that can decode it (one with the keys, where it is "
    "encrypted) copy it to another topic, and go on without it here: "
    '.option("failOnDataLoss", "false"), or "quarantine" to keep its bytes in a file'
)


class DataLossError(PulsarishError):
    """Messages that a query should have read are gone, or cannot be decoded."""


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """The policy for lost messages; it travels to the tasks. ``quarantine``: where they are written down, if they
    are; ``fail`` is false then."""

    fail: bool
    quarantine: QuarantineFolder | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> LossPolicy:
        """The policy that the options say."""
        directory = options.quarantine_directory
        return cls(options.on_loss == "fail", QuarantineFolder(directory) if directory else None)

    def prepare(self) -> None:
        """On the driver, before anything is read: ConfigError where no loss could be written down."""
        if self.quarantine is not None:
            self.quarantine.prepare()

    def report(self, loss: Loss, subscription: str = "") -> None:
        """Raise DataLossError; or warn, when what is missing is written down, if it has to be.

        ``subscription``: of the query, where the driver tells. Raises ConfigError where it cannot be written down.
        """
        if self.fail:
            raise DataLossError(loss.what, hint=_UNDECODABLE_HINT if loss.reason == "undecodable" else _HINT)
        effect = "reading goes on because failOnDataLoss is false"
        if self.quarantine is not None:
            effect = f"reading goes on, and what is missing is in {self.quarantine.write(loss, subscription)}"
        logger.warning("data loss what=%s effect=%s", loss.what, effect)
