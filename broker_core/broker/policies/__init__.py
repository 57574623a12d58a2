# SPDX-License-Identifier: Apache-2.0
"""What an administrator may set, for whom, and which setting is in force."""
