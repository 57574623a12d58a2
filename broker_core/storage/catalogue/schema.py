# SPDX-License-Identifier: Apache-2.0
"""The form of the tables of the catalogue (``meta.db``) in each version, and what must never be found in them.

A new table, or a change of one, is a new VERSION and a step in STEPS; new directories take the same steps.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 3
"""Kept in SQLite's ``user_version``."""

JOURNAL_SINCE: Final = 3
"""Since this version ``meta.changes`` and ``marks`` are kept."""

APPLICATION_ID: Final = 0x50534831
"""Kept in SQLite's ``application_id``: says that the file is ours ("PSH1")."""

_TABLES_OF_3: Final = """
CREATE TABLE values_by_name (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tenants (name TEXT PRIMARY KEY, config TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE namespaces (name TEXT PRIMARY KEY, policies TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE partitioned_topics (
  name TEXT PRIMARY KEY,
  partitions INTEGER NOT NULL,
  properties TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE topics (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  created_ms INTEGER NOT NULL,
  properties TEXT NOT NULL,
  trimmed_ledger INTEGER NOT NULL DEFAULT -1,
  trimmed_entry INTEGER NOT NULL DEFAULT -1,
  trimmed_next_index INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE ledgers (
  id INTEGER PRIMARY KEY,
  topic_id INTEGER NOT NULL,
  state INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  first_index INTEGER NOT NULL,
  next_index INTEGER NOT NULL DEFAULT 0,
  entries INTEGER NOT NULL DEFAULT 0,
  footer_offset INTEGER NOT NULL DEFAULT 0,
  size_bytes INTEGER NOT NULL DEFAULT 0,
  first_ms INTEGER NOT NULL DEFAULT 0,
  last_ms INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX ledgers_of_topic ON ledgers (topic_id);
CREATE TABLE subscriptions (
  id INTEGER PRIMARY KEY,
  topic_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  initial_ledger INTEGER NOT NULL,
  initial_entry INTEGER NOT NULL,
  properties TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  UNIQUE (topic_id, name)
) STRICT;
CREATE TABLE cursor_epochs (cursor_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL) STRICT;
CREATE TABLE topic_policies (name TEXT PRIMARY KEY, policies TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
"""The tables of version 3. Later versions are made from it by STEPS."""

STEPS: Final = {
    1: """
CREATE TABLE topic_policies (name TEXT PRIMARY KEY, policies TEXT NOT NULL) STRICT, WITHOUT ROWID;
UPDATE namespaces SET policies = '{}';
""",
    2: """
ALTER TABLE ledgers ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
""",
}
"""What makes the next version of a version. Version 1 kept for a namespace whatever object a client had sent and never
acted on it; acting on it from now on could delete data that users expect to be kept, so it is forgotten. Version 2 knew
nothing of the files that tell damage (JOURNAL_SINCE), and a broker of that version would let them fall behind."""


def create() -> str:
    """The SQL that makes the present version in an empty database."""
    return f"{_TABLES_OF_3} PRAGMA application_id = {APPLICATION_ID}; {upgrade_from(3)}"


def upgrade_from(version: int) -> str:
    """The SQL that makes the present version of ``version``, one of STEPS, or of itself."""
    steps = [STEPS[each] for each in range(version, VERSION)]
    return "".join([*steps, f"PRAGMA user_version = {VERSION};"])


CONTRADICTIONS: Final = {
    "a ledger of no topic": "SELECT id FROM ledgers WHERE state <> 3 AND topic_id NOT IN (SELECT id FROM topics)",
    "a ledger in no known state": "SELECT id FROM ledgers WHERE state NOT IN (0, 1, 2, 3)",
    "a ledger with impossible sizes": (
        "SELECT id FROM ledgers WHERE state = 2 AND (entries < 0 OR footer_offset < 64 OR size_bytes < footer_offset"
        " OR next_index < first_index + entries)"
    ),
    "a ledger id that was not given out": (
        "SELECT id FROM ledgers WHERE id >= (SELECT value FROM values_by_name WHERE name = 'ledgers')"
    ),
    "a topic id that was not given out": (
        "SELECT id FROM topics WHERE id >= (SELECT value FROM values_by_name WHERE name = 'topics')"
    ),
    "a subscription of no topic": "SELECT id FROM subscriptions WHERE topic_id NOT IN (SELECT id FROM topics)",
    "unreadable properties of a topic": "SELECT id FROM topics WHERE NOT json_valid(properties)",
    "unreadable properties of a subscription": "SELECT id FROM subscriptions WHERE NOT json_valid(properties)",
    "unreadable policies of a namespace": "SELECT name FROM namespaces WHERE NOT json_valid(policies)",
    "unreadable policies of a topic": "SELECT name FROM topic_policies WHERE NOT json_valid(policies)",
    "unreadable config of a tenant": "SELECT name FROM tenants WHERE NOT json_valid(config)",
}
"""What must never be found: each query names the rows that contradict the rest."""
