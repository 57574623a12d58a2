# SPDX-License-Identifier: Apache-2.0
"""The verdict about a schema beside those of a topic, with the fields that differ, before anybody sends with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker_core.base.errors import IncompatibleSchemaError
from broker_core.cli.output import Row
from broker_core.schemas.avro.described import alias_names
from broker_core.schemas.comparison import Comparison, compared
from broker_core.schemas.compatibility import Candidate, Entry
from broker_core.schemas.definition import definition_of
from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Verdict:
    """``same_as``: the version that the schema is already; ``drops_aliases``: that has other aliases, and keeps them.
    ``comparisons``: the last version, and each that refuses the schema. ``refusal``: as the broker would say it."""

    strategy: Strategy
    same_as: int | None
    drops_aliases: bool
    comparisons: Sequence[tuple[int, Comparison]]
    refusal: IncompatibleSchemaError | None

    @property
    def advice(self) -> list[str]:
        """Warnings to know before the schema is used."""
        dropped = "the topic will not have its aliases: by them alone a schema is no other one"
        return [each for each in (self._order, dropped if self.drops_aliases else "") if each]

    @property
    def _order(self) -> str:
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
            "aliasesAreDropped": self.drops_aliases,
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
    same = _same(versions, candidate)
    refusing: list[Entry] = []
    refusal: IncompatibleSchemaError | None = None
    for each in versions if strategy.is_transitive else versions[-1:]:
        try:
            if same is None:
                candidate.check_beside((each,), strategy)
        except IncompatibleSchemaError as error:
            refusal = refusal or error
            refusing.append(each)
    told = sorted({each.version: each for each in [*refusing, *versions[-1:]]}.items())
    comparisons = [
        (version, compared(definition_of(each.info), candidate.definition)) for version, each in told if each.info
    ]
    drops_aliases = same is not None and _aliases(same.info) != _aliases(info)
    return Verdict(strategy, None if same is None else same.version, drops_aliases, comparisons, refusal)


def _same(versions: Sequence[Entry], candidate: Candidate) -> Entry | None:
    """The version that a schema is already."""
    wanted = candidate.definition.fingerprint
    for each in versions:
        if each.info is not None and definition_of(each.info).fingerprint == wanted:
            return each
    return None


def _aliases(info: SchemaInfo | None) -> frozenset[tuple[str, str]]:
    avro = None if info is None else definition_of(info).avro
    return frozenset() if avro is None else alias_names(avro)


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
