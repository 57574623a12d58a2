# SPDX-License-Identifier: Apache-2.0
"""A regular expression over the topics of one namespace. Pure.

The namespace is literal, the rest of the name is the expression, which must match the whole name of a topic without
its partition. ``spanning`` reads an expression over several namespaces, all of which it has to name, for the protocol
lists the topics of a namespace, but no namespaces.
Source: Pulsar docs, "Messaging - Multi-topic subscriptions"; PIP-145; semantics 1.2, 7.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker_core.base.errors import UsageError
from broker_core.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, TopicName

_PARTS = re.compile(r"(?:(?:persistent|non-persistent)://)?(?:([^/]+)/([^/]+)/)?([^/]+)")


@dataclass(frozen=True, slots=True)
class TopicsPattern:
    """``text`` as the user wrote it."""

    text: str
    namespace: NamespaceName
    local: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TopicsPattern:
        """Read ``[domain://tenant/namespace/]expression``; UsageError says what is wrong."""
        tenant, namespace, local = _parts(text)
        return cls(text, NamespaceName.parse(f"{tenant}/{namespace}"), local)

    @classmethod
    def spanning(cls, text: str) -> tuple[TopicsPattern, ...]:
        """As ``parse``, where tenant and namespace may have alternatives (``public/(a|b)/.*``): one pattern for each
        namespace."""
        tenant, namespace, local = _parts(text)
        try:
            names = [NamespaceName.parse(each) for each in literal_choices(f"{tenant}/{namespace}")]
        except ValueError as error:
            raise UsageError(
                f"topics pattern {text!r} does not name its namespaces: {error}",
                hint="name them, as in public/(a|b)/.*; brokers list the topics of a namespace, and no namespaces",
            ) from error
        return tuple(cls(text, name, local) for name in names)

    def select(self, topics: Iterable[str]) -> set[TopicName]:
        """The ones of ``topics`` (full names, partitions singly) that match. Topics that brokers keep for themselves
        never match."""
        names = map(TopicName.parse, topics)
        return {name for name in names if not name.is_internal and self.local.fullmatch(name.base.local)}

    def matches(self, topic: TopicName) -> bool:
        """Whether a topic, which may not exist, is one of the namespace and would be selected."""
        return topic.namespace_name == self.namespace and bool(self.select([str(topic)]))


def _parts(text: str) -> tuple[str, str, re.Pattern[str]]:
    """Tenant, namespace and expression."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"topics pattern {text!r} is not one of names in a namespace",
            hint="write expression, or tenant/namespace/expression",
        )
    tenant, namespace, local = parts.groups()
    try:
        return tenant or DEFAULT_TENANT, namespace or DEFAULT_NAMESPACE, re.compile(local, re.DOTALL)
    except re.error as error:
        raise UsageError(
            f"topics pattern {text!r} is not a regular expression: {error}", hint="mend the expression"
        ) from error


# -- the texts that a simple expression stands for, such as ``a`` and ``b`` for ``(a|b)``

CHOICES_MAX: Final = 100
"""Each is a question to the broker, asked again and again."""

_LITERAL: Final = frozenset("-=:._/")


def literal_choices(expression: str) -> tuple[str, ...]:
    """All texts that ``expression`` matches, each once, in its order; ValueError says what it has that is not known.

    Alternatives and groups are known; an expression that stands for any number of texts is refused. A dot is itself,
    for names have dots and cannot be guessed.
    """
    reader = _Reader(expression)
    found = reader.alternatives()
    if reader.at < len(expression):
        raise ValueError(f'"{expression[reader.at]}" at character {reader.at + 1} stands for more than some names')
    return tuple(dict.fromkeys(found))


class _Reader:
    """Reads from left to right; ``at`` is the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def alternatives(self) -> list[str]:
        found = self._sequence()
        while self._takes("|"):
            found += self._sequence()
            self._check(len(found))
        return found

    def _sequence(self) -> list[str]:
        found = [""]
        while (parts := self._part()) is not None:
            self._check(len(found) * len(parts))
            found = [before + part for before, part in itertools.product(found, parts)]
        return found

    def _part(self) -> list[str] | None:
        """The texts for which one character or group stands; None at the end of the sequence."""
        if self._takes("("):
            self._takes("?:")
            found = self.alternatives()
            if not self._takes(")"):
                raise ValueError('a "(" has no ")"')
            return found
        escaped = self._text.startswith("\\", self.at)
        next_ = self._text[self.at + escaped : self.at + escaped + 1]
        if not next_ or not (next_ in _LITERAL or (next_.isalnum() and not escaped)):
            return None
        self.at += escaped + 1
        return [next_]

    def _takes(self, token: str) -> bool:
        taken = self._text.startswith(token, self.at)
        self.at += len(token) if taken else 0
        return taken

    def _check(self, count: int) -> None:
        if count > CHOICES_MAX:
            raise ValueError(f"it stands for more than {CHOICES_MAX} names")
