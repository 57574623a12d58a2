# SPDX-License-Identifier: Apache-2.0
"""Limits that are part of the protocol or protect a process, each with its unit and its reason.

Limits that an operator may want to change are settings (``config``), not constants here.
"""

from typing import Final

MESSAGE_BYTES_MAX_DEFAULT: Final = 5 * 1024 * 1024
"""Pulsar's default ``maxMessageSize``: the payload of one entry, in bytes."""

FRAME_SLACK_BYTES: Final = 10 * 1024
"""Bytes of a frame beyond ``maxMessageSize``: command, metadata, framing. Pulsar allows the same 10 KiB."""

STRANGER_FRAME_BYTES_MAX: Final = 64 * 1024
"""A frame of a client that has to show who it is, and has not yet: CONNECT with the longest token takes a quarter."""

SMALL_ENTRY_BYTES_MAX: Final = 4096
"""Up to here an entry is small: a copy of it costs less than avoiding it, and unless a topic allows less than this, it
need not be asked whether it is too large."""

METADATA_BYTES_MAX: Final = 1024 * 1024
"""Largest MessageMetadata that is accepted. Properties live here; a larger one is a payload in disguise."""

TOPIC_NAME_BYTES_MAX: Final = 1024
"""A full topic name in UTF-8. Names also become labels of metrics and keys of metadata, so they stay short."""

NAMESPACE_NAME_BYTES_MAX: Final = 512
"""A tenant and its namespace, with the slash between them: names of topics begin with it and need room for more."""

SUBSCRIPTION_NAME_BYTES_MAX: Final = 512
"""A subscription name in UTF-8, for the same reason."""

PRODUCER_NAME_BYTES_MAX: Final = 512
"""A producer name in UTF-8; it travels in every entry."""

CONSUMER_NAME_BYTES_MAX: Final = 512
"""A consumer name in UTF-8; statistics show it, and rings of keys are made of it."""

PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic. Each is a topic of its own with files and cursors."""

BATCH_MESSAGES_MAX: Final = 1_000_000
"""Messages that one entry may claim. The smallest possible member takes 6 bytes, so a 5 MiB entry cannot hold more."""

COMMAND_BYTES_MAX: Final = 512 * 1024
"""A command that is no list of message ids, without the text of its schema: it is read in one go."""

COMMAND_PARTS_MAX: Final = 4096
"""Properties, key ranges and the like in one command, as each is an object of its own."""

PROPERTIES_BYTES_MAX: Final = 64 * 1024
"""Properties of one subscription or topic, names and values in UTF-8: they are kept in memory and in the catalogue."""

PRODUCER_METADATA_BYTES_MAX: Final = 16 * 1024
"""Properties of one producer, which statistics show. Of consumers Pulsar has a setting."""

PROTOCOL_VERSION: Final = 21
"""Pulsar wire protocol version that we speak at most; a connection uses the lower of both ends."""

KEEP_ALIVE_S: Final = 30.0
"""Either end pings after this much silence and gives up after as much again, as the official clients do."""

SENT_NUMBER_MAX: Final = 2**62
"""Largest sequence id or time that a client sends: what is added to it on its way still fits in 64 bits."""

OPERATION_TIMEOUT_S: Final = 60.0
"""A client's patience where nothing else is said. A cluster that has lost a broker needs less: what that one served is
nobody's for 30 s, until its session in the cluster's metadata has ended, and is then loaded by another. With the 30 s
of the Java client one would give up in the moment before."""

CONNECTION_TIMEOUT_S: Final = 10.0

LONG_TRANSACTION_S: Final = 60
"""Age from which a transaction is told whose end readers wait for: most last for less than a second, and consumers are
missed after a minute."""
