# SPDX-License-Identifier: Apache-2.0
"""The tables of the catalogue, and what must never be found in them.

A change of the tables is a new ``layout.FORMAT_VERSION``: a snapshot brings the tables of the broker that wrote it.
Tables that it lacks are made when it is read; the start writes a snapshot with them before anything else.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
CREATE TABLE IF NOT EXISTS values_by_name (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tenants (name TEXT PRIMARY KEY, config TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS namespaces (name TEXT PRIMARY KEY, policies TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS partitioned_topics (
  name TEXT PRIMARY KEY,
  partitions INTEGER NOT NULL,
  properties TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  created_ms INTEGER NOT NULL,
  properties TEXT NOT NULL,
  trimmed_ledger INTEGER NOT NULL DEFAULT -1,
  trimmed_entry INTEGER NOT NULL DEFAULT -1,
  trimmed_next_index INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS ledgers (
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
CREATE INDEX IF NOT EXISTS ledgers_of_topic ON ledgers (topic_id);
CREATE TABLE IF NOT EXISTS subscriptions (
  id INTEGER PRIMARY KEY,
  topic_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  initial_ledger INTEGER NOT NULL,
  initial_entry INTEGER NOT NULL,
  properties TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  UNIQUE (topic_id, name)
) STRICT;
CREATE TABLE IF NOT EXISTS cursor_epochs (cursor_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS topic_policies (name TEXT PRIMARY KEY, policies TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS transactions (
  most INTEGER NOT NULL,
  least INTEGER NOT NULL,
  owner TEXT,
  started_ms INTEGER NOT NULL,
  ttl_ms INTEGER NOT NULL,
  aborted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (most, least)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS transaction_topics (
  most INTEGER NOT NULL,
  least INTEGER NOT NULL,
  topic_id INTEGER NOT NULL,
  after_ledger INTEGER NOT NULL,
  after_entry INTEGER NOT NULL,
  PRIMARY KEY (most, least, topic_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS transactions_of_topic ON transaction_topics (topic_id);
CREATE TABLE IF NOT EXISTS transaction_outcomes (
  most INTEGER NOT NULL,
  segment INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  committed BLOB NOT NULL,
  aborted BLOB NOT NULL,
  PRIMARY KEY (most, segment)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS aborted_entries (
  ledger INTEGER NOT NULL,
  segment INTEGER NOT NULL,
  entries BLOB NOT NULL,
  PRIMARY KEY (ledger, segment)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending_acks (
  subscription_id INTEGER NOT NULL,
  most INTEGER NOT NULL,
  least INTEGER NOT NULL,
  number INTEGER NOT NULL,
  acks BLOB NOT NULL,
  PRIMARY KEY (subscription_id, most, least, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pending_acks_of_transaction ON pending_acks (most, least);
CREATE TABLE IF NOT EXISTS schemas (
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  type INTEGER,
  data BLOB NOT NULL,
  properties TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  role TEXT NOT NULL,
  added_ms INTEGER NOT NULL,
  UNIQUE (id, version)
) STRICT;
CREATE INDEX IF NOT EXISTS schemas_alike ON schemas (id, fingerprint);
"""

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
    "a topic of no transaction": (
        "SELECT most || ',' || least FROM transaction_topics WHERE NOT EXISTS (SELECT 1 FROM transactions"
        " WHERE most = transaction_topics.most AND least = transaction_topics.least)"
    ),
    "a transaction in no topic": (
        "SELECT most || ',' || least FROM transaction_topics WHERE topic_id NOT IN (SELECT id FROM topics)"
    ),
    "aborted entries of no ledger": "SELECT ledger FROM aborted_entries WHERE ledger NOT IN (SELECT id FROM ledgers)",
    "a pending acknowledgement of no subscription": (
        "SELECT subscription_id FROM pending_acks WHERE subscription_id NOT IN (SELECT id FROM subscriptions)"
    ),
    "a version of a schema that is missing": (
        "SELECT id || ' ' || (version - 1) FROM schemas AS later WHERE version % 1000000 <> 0 AND NOT EXISTS"
        " (SELECT 1 FROM schemas WHERE id = later.id AND version = later.version - 1)"
    ),
    "unreadable properties of a schema": "SELECT id FROM schemas WHERE NOT json_valid(properties)",
    "unreadable properties of a topic": "SELECT id FROM topics WHERE NOT json_valid(properties)",
    "unreadable properties of a subscription": "SELECT id FROM subscriptions WHERE NOT json_valid(properties)",
    "unreadable policies of a namespace": "SELECT name FROM namespaces WHERE NOT json_valid(policies)",
    "unreadable policies of a topic": "SELECT name FROM topic_policies WHERE NOT json_valid(policies)",
    "unreadable config of a tenant": "SELECT name FROM tenants WHERE NOT json_valid(config)",
}
"""Rows that must never be found: each query names those that contradict the rest."""
