# SPDX-License-Identifier: Apache-2.0
"""Lost data: its rules, its texts, and the policy for it."""
