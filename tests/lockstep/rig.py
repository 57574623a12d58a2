# SPDX-License-Identifier: Apache-2.0
"""``play``: one script in lockstep on two brokers, ours and a real Apache Pulsar as a rule.

After each step the two must have seen the same. ``play`` waits until they have and nothing more comes; what still
differs when it has waited for long is a difference, which ``smaller`` makes shorter. Owns the waiting and the telling.
The steps are ``script``'s; what is compared is ``side``'s.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pprint import pformat
from typing import Any, Final

from tests.lockstep.script import Script, Step
from tests.lockstep.side import Side
from tests.server.oracle import Side as Address

QUIET_S: Final = 0.03
"""On each broker nothing has come for so long: the step is over. Brokers wait 10 ms themselves at times (2.9.2)."""

PATIENCE_S: Final = 10.0
"""Apache Pulsar on a busy machine takes so long at times."""

OUR_SETTINGS: Final = {"failoverNonPartitioned": "hash_ring"}
"""With which ours chooses the active consumer of Failover as Apache Pulsar does (2.3.3)."""

NO_TAKEOVER_PAUSE: Final = {"activeConsumerFailoverDelayTimeMillis": 0}
"""For both brokers, where they are the rig's own: then ``takeover_s`` is 0."""


@dataclass(frozen=True, slots=True)
class Rivals:
    """The two brokers. ``takeover_s``: how long both let a new active consumer wait (2.3.4.1). ``patience_s``: how long
    one may be behind the other."""

    ours: Address
    theirs: Address
    takeover_s: float
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Difference:
    """Behind the last of ``steps`` the brokers were not of one mind."""

    script: Script
    steps: tuple[Step, ...]
    ours: object
    theirs: object

    def __str__(self) -> str:
        limit = f", {self.script.unacked_max} unacknowledged at most" if self.script.unacked_max else ""
        return "\n".join([
            f"seed {self.script.seed}{limit}",
            *(f"  {step}" for step in self.steps),
            f"ours:   {pformat(self.ours, width=110, compact=True)}",
            f"theirs: {pformat(self.theirs, width=110, compact=True)}",
        ])  # fmt: skip


def play(script: Script, rivals: Rivals) -> Difference | None:
    """Play ``script`` on both; the first difference, if there is one."""
    topic = f"persistent://public/lockstep-{uuid.uuid4().hex[:10]}/t"
    with (
        Side("ours", rivals.ours, topic, script.unacked_max) as ours,
        Side("theirs", rivals.theirs, topic, script.unacked_max) as theirs,
    ):
        for number, step in enumerate(script.steps, 1):
            mine, yours = _outcome(ours, step), _outcome(theirs, step)
            if mine != yours:
                return Difference(script, script.steps[:number], mine, yours)
            at_least_s = rivals.takeover_s if ours.may_take_over(step) else 0.0
            apart = _settled(ours, theirs, at_least_s, at_least_s + rivals.patience_s)
            if apart is not None:
                return Difference(script, script.steps[:number], *apart)
    return None


def smaller(difference: Difference, rivals: Rivals, within_s: float) -> Difference:
    """Leave out steps, the last ones first, as long as there still is a difference, and time."""
    deadline = time.monotonic() + within_s
    at = len(difference.steps) - 2
    while at >= 0 and time.monotonic() < deadline:
        fewer = difference.steps[:at] + difference.steps[at + 1 :]
        if (found := play(replace(difference.script, steps=fewer), rivals)) is not None:
            difference = found
        at = min(at, len(difference.steps) - 1) - 1
    return difference


def _outcome(side: Side, step: Step) -> str:
    try:
        return side.do(step)
    except TimeoutError as late:
        return str(late)


def _settled(ours: Side, theirs: Side, at_least_s: float, at_most_s: float) -> tuple[object, object] | None:
    """Wait until nothing more happens; what is not the same then."""
    began = time.monotonic()
    while True:
        for side in (ours, theirs):
            side.collect(QUIET_S)
        mine, yours = ours.view(), theirs.view()
        waited_s = time.monotonic() - began
        if mine == yours and not mine["faults"] and waited_s >= at_least_s:
            return None
        if waited_s > at_most_s:
            return _apart(mine, yours)


def _apart(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[object, object]:
    """What is not the same, without what is."""
    mine, yours = _only(dict(ours), dict(theirs))
    return {**mine, "faults": ours["faults"]}, {**yours, "faults": theirs["faults"]}


def _only(mine: Any, yours: Any) -> tuple[Any, Any]:
    """Of two values what differs: of dicts the items that do, of lists what comes behind their common beginning."""
    if isinstance(mine, dict) and isinstance(yours, dict):
        names = [name for name in mine | yours if mine.get(name) != yours.get(name)]
        pairs = {name: _only(mine.get(name), yours.get(name)) for name in names}
        return {name: one for name, (one, _) in pairs.items()}, {name: other for name, (_, other) in pairs.items()}
    if isinstance(mine, list) and isinstance(yours, list):
        same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(mine, yours, strict=False))))
        return [*["..."][:same], *mine[same:]], [*["..."][:same], *yours[same:]]
    return mine, yours
