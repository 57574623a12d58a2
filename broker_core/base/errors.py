# SPDX-License-Identifier: Apache-2.0
"""The one error tree. Every error says what failed, why, and (``hint``) what to do.

    PulsarishError
    |- UsageError                  the caller's own mistake, found before anything was sent
    |  |- ConfigError              a setting or option is unknown or has a bad value
    |  '- RowError                 a row of a columnar write cannot be sent; says which
    |- ProtocolError
    |  |- LocalProtocolError       we would have sent something invalid
    |  '- RemoteProtocolError      the peer did
    |- ConnectionLostError         the peer went away; outcomes in flight are unknown
    |- TlsError                    the peer's certificate cannot be trusted, or it does not take ours
    |- OperationTimeoutError       no answer in time; the outcome is unknown
    |  |- SendUnconfirmedError     a message was sent and never answered; it may or may not be stored
    |  '- TransactionUnconfirmedError  the end of a transaction was asked for and never answered
    |- AlreadyClosedError          used after close()
    |- QueueFullError              more is waiting to be sent than the producer's limits allow; nothing was sent
    |- RowsUnconfirmedError        a columnar write failed; says which rows may or may not be stored
    |- TransactionHasOperationFailedError  something in a transaction failed, so that it was not committed
    |- UnreadableValueError        a message's value is not what its schema says; nothing is wrong with the topic
    |- StorageError
    |  |- DataDirLockedError       another process owns the data directory
    |  |- DataFormatError          the data directory is of another format, or its catalogue is damaged
    |  |- CorruptEntryError        a stored entry fails its checksum; it is never delivered
    |  '- DiskFailedError          the disk refused a write or sync: the process must stop
    '- ServerError                 what a broker answers; one class for each code of the protocol

A ServerError travels as its ``code``; ``server_error(code, text)`` makes the class again on the other side.
``retriable`` tells whether trying again later may help without any change by the user.
"""

from __future__ import annotations

from typing import ClassVar


class PulsarishError(Exception):
    """Root of the tree. ``str()`` is one line: what and why, then the hint."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(PulsarishError):
    """The caller asked for something that cannot be right."""


class ConfigError(UsageError):
    """A setting or option is unknown or has a bad value."""


class RowError(UsageError):
    """A row of a columnar write cannot be sent. ``row``: its number from 0 in the batch that was given to the writer.

    ``flaw`` is what follows the row in a sentence: ``has a value of 9 bytes, ...``.
    """

    def __init__(self, row: int, flaw: str, *, hint: str = "") -> None:
        super().__init__(f"row {row} {flaw}", hint=hint)
        self.args = (row, flaw)  # so that a copy can be made, as pickle does
        self.row = row
        self.flaw = flaw


class ProtocolError(PulsarishError):
    """Bytes on the wire that are against the protocol."""


class LocalProtocolError(ProtocolError):
    """We were about to send something invalid."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something invalid."""


class ConnectionLostError(PulsarishError):
    """The connection ended. What was in flight may or may not have happened."""

    retriable = True


class TlsError(PulsarishError):
    """No trust over TLS: the peer's certificate is not to be believed, or it wants another one than ours, or none."""


class OperationTimeoutError(PulsarishError):
    """No answer in time. What was asked may or may not have happened, unless the message says that it was not sent."""

    retriable = True


class SendUnconfirmedError(OperationTimeoutError):
    """A message was sent, and no receipt came in time, or can come any more. It may or may not be stored.

    ``__cause__`` is what ended its producer meanwhile, if anything did.
    """


class TransactionUnconfirmedError(OperationTimeoutError):
    """A transaction was to be ended, and its coordinator does not tell whether it was: it may be committed or not.

    The same call may be made again. ``__cause__`` is what came in place of the answer.
    """


class ExistsError(PulsarishError):
    """The object that was to be made exists."""


class AlreadyClosedError(PulsarishError):
    """The object was closed before this call."""


class QueueFullError(PulsarishError):
    """More is waiting for its receipt than the producer's limits allow. The message was not sent."""

    retriable = True


class RowsUnconfirmedError(PulsarishError):
    """A columnar write failed half-way. ``unknown_rows`` may or may not be stored; of the others some are and some were
    never sent: the message says how many.

    Rows are numbered from 0 in the order in which the writer was given them.
    """

    def __init__(self, message: str, *, hint: str = "", unknown_rows: tuple[int, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.unknown_rows = unknown_rows


class TransactionHasOperationFailedError(PulsarishError):
    """A message or an acknowledgement of a transaction has failed, which is why it was aborted and not committed.

    ``__cause__`` is the first of these failures.
    """


class UnreadableValueError(PulsarishError):
    """A payload is no value of its schema, or its schema is not known: which message, version and field it is about."""


class StorageError(PulsarishError):
    """Something about stored data."""


class DataDirLockedError(StorageError):
    """Another process owns the data directory."""


class DataFormatError(StorageError):
    """The data directory is of an unknown format, or its catalogue is damaged."""


class CorruptEntryError(StorageError):
    """A stored entry fails its checksum."""


class DiskFailedError(StorageError):
    """A write or sync failed. What is on disk is unknown until the next recovery, so the process must stop."""


class ServerError(PulsarishError):
    """A broker refused. ``code`` is the number of Pulsar's ``ServerError``."""

    code: ClassVar[int] = 0


class MetadataServerError(ServerError):
    code = 1
    retriable = True


class PersistenceServerError(ServerError):
    code = 2
    retriable = True


class AuthenticationError(ServerError):
    code = 3


class AuthorizationError(ServerError):
    code = 4


class ConsumerBusyError(ServerError):
    code = 5


class ServiceNotReadyError(ServerError):
    code = 6
    retriable = True


class ProducerBlockedQuotaError(ServerError):
    code = 7
    retriable = True


class ProducerBlockedQuotaException(ServerError):  # noqa: N818 - Pulsar has both names, for hold and for refuse
    code = 8


class ChecksumMismatchError(ServerError):
    code = 9


class UnsupportedVersionError(ServerError):
    code = 10


class TopicNotFoundError(ServerError):
    code = 11


class PartitionUnmadeError(TopicNotFoundError):
    """A partition is not there, and its topic names it: nobody has used it yet, or it was deleted. No broker tells."""


class SubscriptionNotFoundError(ServerError):
    code = 12


class ConsumerNotFoundError(ServerError):
    code = 13


class TooManyRequestsError(ServerError):
    code = 14
    retriable = True


class TopicTerminatedError(ServerError):
    code = 15


class ProducerBusyError(ServerError):
    code = 16


class InvalidTopicNameError(ServerError):
    code = 17


class IncompatibleSchemaError(ServerError):
    code = 18


class ConsumerAssignError(ServerError):
    code = 19


class TransactionCoordinatorNotFoundError(ServerError):
    code = 20
    retriable = True


class InvalidTxnStatusError(ServerError):
    code = 21


class NotAllowedError(ServerError):
    code = 22


class TransactionConflictError(ServerError):
    code = 23


class TransactionNotFoundError(ServerError):
    code = 24


class ProducerFencedError(ServerError):
    code = 25


_BY_CODE = {kind.code: kind for kind in ServerError.__subclasses__()}


def server_error(code: int, message: str) -> ServerError:
    """The error that a peer named by ``code``; an unknown code becomes a plain ServerError."""
    return _BY_CODE.get(code, ServerError)(message)
