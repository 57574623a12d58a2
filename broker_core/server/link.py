# SPDX-License-Identifier: Apache-2.0
"""The way back to one client: what it announced of itself, and how commands are sent to it.

Code that answers a client is given its link. The link knows no socket (it writes to an ``Outbox``) and nothing of what
the client has open. Invariant: a command leaves only when all changes that it may speak of are durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.errors import StorageError
from broker_core.server.outbox import Outbox
from broker_core.storage.commit import GroupCommit, OnDurable
from broker_core.wire.frames import encode_command
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

NO_REQUEST: Final = 2**64 - 1
"""The request id of what answers no request: -1 in an unsigned field, as Pulsar's broker sends it."""

logger = logging.getLogger(__name__)

_REASONS: Final[dict[int, Callable[[BaseCommand], str]]] = {
    BaseCommand.SEND_ERROR: lambda answer: answer.send_error.message,
    BaseCommand.ACK_RESPONSE: lambda answer: answer.ackResponse.message,
    BaseCommand.LOOKUP_RESPONSE: lambda answer: answer.lookupTopicResponse.message,
    BaseCommand.PARTITIONED_METADATA_RESPONSE: lambda answer: answer.partitionMetadataResponse.message,
    BaseCommand.ERROR: lambda answer: answer.error.message if answer.error.request_id != NO_REQUEST else "",
}
"""Where an answer says why a request is refused; "" if it is not. What ends the connection is logged as that."""


@dataclass(frozen=True, slots=True)
class ClientFeatures:
    """What the client announced in CONNECT."""

    version: str = ""
    protocol_version: int = 0
    broker_entry_metadata: bool = False


@dataclass(slots=True, eq=False)
class Link:
    """The link to the client of one connection. ``features`` are known from CONNECT on."""

    outbox: Outbox
    commits: GroupCommit
    peer_address: str = "unknown"
    features: ClientFeatures = field(default_factory=ClientFeatures)

    def send(self, command: BaseCommand) -> None:
        """Queue a command as one frame; a refusal is logged."""
        reason = _REASONS[command.type](command) if command.type in _REASONS else ""
        if reason:
            logger.info("request refused peer=%s client=%s reason=%s", self.peer_address, self.features.version, reason)
        if not self.commits.recorded:
            self.outbox.hold()
            self.commits.when_recorded(self._recorded)
        self.outbox.put(encode_command(command))

    def hold_until(self, when: Callable[[OnDurable], None]) -> None:
        """Say nothing more until what is handed to ``when`` is called; never, if it is told an error."""
        self.outbox.hold()
        when(self._recorded)

    def _recorded(self, error: StorageError | None) -> None:
        if error is None:
            self.outbox.release()
        else:
            self.outbox.cut_off()
