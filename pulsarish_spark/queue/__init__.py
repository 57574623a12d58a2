# SPDX-License-Identifier: Apache-2.0
"""Queue mode: the broker gives entries to a query as to any consumer of a shared subscription."""
