# SPDX-License-Identifier: Apache-2.0
"""Where a subscription stands: its cursor, how that is written down, and how it is moved to another place."""
