# SPDX-License-Identifier: Apache-2.0
"""Tables of the catalogue (``meta.db``) and its version. SQL of the tables lives here and in ``metadata``."""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 1
"""Kept in SQLite's ``user_version``."""

APPLICATION_ID: Final = 0x50534831
"""Kept in SQLite's ``application_id``: says that the file is ours ("PSH1")."""

TABLES: Final = """
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
  last_ms INTEGER NOT NULL DEFAULT 0
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
"""
