# SPDX-License-Identifier: Apache-2.0
"""Exit codes, and which error ends in which code. Scripts rely on them: a number never changes its meaning."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from broker_core.base import errors


class Exit(IntEnum):
    """Exit codes of the process."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    UNREACHABLE = 5
    TIMEOUT = 6
    DAMAGE = 7
    DISK_FAILED = 8
    EXISTS = 9
    INCOMPATIBLE = 10
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


SIGNALLED: Final = 128
"""Shells add the number of a signal to it."""


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILURE: "it failed for a reason that has no code of its own; the text on stderr says which",
    Exit.USAGE: "the command line, a name or a setting is wrong, and nothing was done; or a line of input is, and only "
    "those before it were sent",
    Exit.NOT_FOUND: "the topic, namespace, subscription or transaction does not exist",
    Exit.AUTH: "the broker wants to know who you are, or does not allow you this",
    Exit.UNREACHABLE: "no broker answers at the address",
    Exit.TIMEOUT: "no answer in time; what was asked may or may not have happened",
    Exit.DAMAGE: "stored data is damaged",
    Exit.DISK_FAILED: "the disk refused a write or sync, so the broker stopped; start it again when the disk is well",
    Exit.EXISTS: "the topic, namespace or subscription exists, and was to be made",
    Exit.INCOMPATIBLE: "the schema is not compatible with that of the topic, or is none",
    Exit.HUNG_UP: "SIGHUP ended produce before it was done, as its terminal was closed",
    Exit.INTERRUPTED: "Ctrl-C ended it before it was done, as shells number it",
    Exit.TERMINATED: "SIGTERM ended produce before it was done",
}

_BY_ERROR: tuple[tuple[type[errors.PulsarishError], Exit], ...] = (
    (errors.UsageError, Exit.USAGE),
    (errors.InvalidTopicNameError, Exit.USAGE),
    (errors.TopicNotFoundError, Exit.NOT_FOUND),
    (errors.SubscriptionNotFoundError, Exit.NOT_FOUND),
    (errors.AuthenticationError, Exit.AUTH),
    (errors.AuthorizationError, Exit.AUTH),
    (errors.TlsError, Exit.AUTH),
    (errors.ConnectionLostError, Exit.UNREACHABLE),
    (errors.ServiceNotReadyError, Exit.UNREACHABLE),
    (errors.OperationTimeoutError, Exit.TIMEOUT),
    (errors.CorruptEntryError, Exit.DAMAGE),
    (errors.DataFormatError, Exit.DAMAGE),
    (errors.ChecksumMismatchError, Exit.DAMAGE),
    (errors.DiskFailedError, Exit.DISK_FAILED),
    (errors.ExistsError, Exit.EXISTS),
    (errors.IncompatibleSchemaError, Exit.INCOMPATIBLE),
)


def exit_code(error: errors.PulsarishError) -> Exit:
    """The code for an error of the tree; FAILURE where no entry fits."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILURE)
