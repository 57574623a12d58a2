# SPDX-License-Identifier: Apache-2.0
"""Values read by a schema: which one a query has, rows decoded by it, bad records, and what changes on the topic."""
