# SPDX-License-Identifier: Apache-2.0
"""The verdict about a schema beside those of a topic, with the fields that differ, before anybody sends with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.cli.output import Row
from broker_core.schemas.comparison import Comparison, compared
from broker_core.schemas.compatibility import Candidate, Entry
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Verdict:
    """``same_as``: the version that the schema is already. ``comparisons``: the last version, and each that refuses the
    schema. ``refusal``: as the broker would say it."""

    strategy: Strategy
    same_as: int | None
    comparisons: Sequence[tuple[int, Comparison]]
    refusal: IncompatibleSchemaError | None

    @property
    def advice(self) -> str:
        """The order in which producers and consumers may change from the last version on; "": any."""
        last = self.comparisons[-1][1]
        if last.new_reads_old and last.old_reads_new:
            return ""
        if last.new_reads_old:
            return "change consumers first: those with the older schema cannot read new data"
        if last.old_reads_new:
            return "change producers first: consumers with the new schema cannot read what is stored"
        return "neither can read data of the other: use a topic of its own"

    def to_json(self) -> dict[str, Any]:
        """The object for programs."""
        return {
            "isCompatible": self.refusal is None,
            "schemaCompatibilityStrategy": self.strategy.name,
            "sameAsVersion": self.same_as,
            "reason": None if self.refusal is None else self.refusal.message,
            "versions": [
                {
                    "version": version,
                    "newReadsOld": comparison.new_reads_old,
                    "oldReadsNew": comparison.old_reads_new,
                    "fields": field_rows(comparison),
                }
                for version, comparison in self.comparisons
            ],
        }


def judged(versions: Sequence[Entry], info: SchemaInfo, strategy: Strategy) -> Verdict:
    """The verdict of a strategy about a schema that is to come after ``versions``; InvalidSchemaError."""
    candidate = Candidate(info)
    same_as = _same(versions, candidate)
    refusing: list[Entry] = []
    refusal: IncompatibleSchemaError | None = None
    for each in versions if strategy.is_transitive else versions[-1:]:
        try:
            if same_as is None:
                candidate.check_beside((each,), strategy)
        except IncompatibleSchemaError as error:
            refusal = refusal or error
            refusing.append(each)
    told = sorted({each.version: each for each in [*refusing, *versions[-1:]]}.items())
    comparisons = [
        (version, compared(definition_of(each.info), candidate.definition)) for version, each in told if each.info
    ]
    return Verdict(strategy, same_as, comparisons, refusal)


def _same(versions: Sequence[Entry], candidate: Candidate) -> int | None:
    wanted = candidate.definition.fingerprint
    for each in versions:
        if each.info is not None and definition_of(each.info).fingerprint == wanted:
            return each.version
    return None


def field_rows(comparison: Comparison) -> list[Row]:
    """The fields of a comparison under the names of the table and of JSON."""
    return [
        {
            "field": each.path,
            "old": each.old,
            "new": each.new,
            "newReadsOld": each.new_reads_old,
            "oldReadsNew": each.old_reads_new,
            "reasons": list(each.reasons),
        }
        for each in comparison.fields
    ]
