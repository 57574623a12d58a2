# SPDX-License-Identifier: Apache-2.0
"""What the broker does for each command, by topic. ``server.conversation`` has the table of all of them."""
