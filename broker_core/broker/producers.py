# SPDX-License-Identifier: Apache-2.0
"""``Producers``: who produces to one topic, and who may take a name.

A name belongs to one connected producer. A name that the broker generated can be taken over by the same producer's next
connection, which it proves by a higher epoch; the older connection is then dead even if nobody has noticed yet. A name
that a user chose cannot, as two programs may choose the same. Source: Pulsar docs, "Producers"; semantics 1.7.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker_core.base.errors import NotAllowedError, ProducerBusyError, ServerError
from broker_core.base.limits import PRODUCER_NAME_BYTES_MAX
from broker_core.broker.producer import Producer
from broker_core.broker.requests import AccessMode, ProducerRequest


class Producers:
    """The connected producers of one topic by name."""

    def __init__(self, topic: str, generate_name: Callable[[], str]) -> None:
        self._topic = topic
        self._generate_name = generate_name
        self._by_name: dict[str, Producer] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._by_name.values()))

    def admit(self, request: ProducerRequest) -> str:
        """The name under which this producer may connect now. ProducerBusyError if another one has it."""
        if request.access_mode is not AccessMode.SHARED:
            raise NotAllowedError(
                f"access mode {request.access_mode.label} is not supported on {self._topic}",
                hint="produce with access mode Shared",
            )
        if not request.name:
            name = self._generate_name()
            while name in self._by_name:  # somebody chose a name of this form
                name = self._generate_name()
            return name
        if len(request.name.encode("utf-8", "replace")) > PRODUCER_NAME_BYTES_MAX:
            raise NotAllowedError(
                f"producer name {request.name[:40]!r}... is longer than {PRODUCER_NAME_BYTES_MAX} bytes",
                hint="choose a shorter name",
            )
        older = self._by_name.get(request.name)
        if older is not None:
            if not _succeeds(request, older.request):
                raise self._busy(request.name)
            older.abandon()
        return request.name

    def add(self, producer: Producer) -> None:
        self._by_name[producer.name] = producer

    def remove(self, producer: Producer) -> None:
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]

    def _busy(self, name: str) -> ServerError:
        return ProducerBusyError(
            f"producer {name!r} is already connected to {self._topic}",
            hint="close it first, or choose another name; leave the name out to get a unique one",
        )


def _succeeds(newer: ProducerRequest, older: ProducerRequest) -> bool:
    return not newer.user_provided_name and newer.epoch > older.epoch
