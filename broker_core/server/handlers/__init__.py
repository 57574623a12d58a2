# SPDX-License-Identifier: Apache-2.0
"""Handlers of the commands, by topic. ``server.conversation`` has the table of all of them."""
