# SPDX-License-Identifier: Apache-2.0
"""The nearest known name to a misspelt one, for the "did you mean" of every error text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from broker_core.base.names import TopicName


def closest(word: str, known: Iterable[str], *, likeness_min: float = 0.6) -> str | None:
    """The name in ``known`` most like ``word``, or None if none is at least ``likeness_min`` (0 to 1) alike.

    Case, dashes, dots and underscores do not count, so ``max_message_sise`` finds ``maxMessageSize``.
    """
    by_form = {_form(name): name for name in known}
    found = difflib.get_close_matches(_form(word), by_form, n=1, cutoff=likeness_min)
    return by_form[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """``did you mean "x"?``, or ``otherwise`` when nothing is near."""
    found = closest(word, known)
    return f'did you mean "{found}"?' if found else otherwise


def meant_topic(missing: TopicName, there: Iterable[TopicName]) -> str:
    """``did you mean "x"?`` with the topic of ``there`` whose name is most like that of ``missing``; empty: none is.

    Topics of other namespaces do not count, nor those that brokers keep for themselves; a partition counts for its
    topic.
    """
    home = (missing.domain, missing.namespace_name)
    near = {each.base for each in there if (each.domain, each.namespace_name) == home and not each.is_system}
    by_local = {each.local: each for each in near - {missing}}
    found = closest(missing.base.local, by_local)
    return f'did you mean "{by_local[found].short}"?' if found else ""


def _form(name: str) -> str:
    return "".join(c for c in name.lower() if c not in "-_.")
