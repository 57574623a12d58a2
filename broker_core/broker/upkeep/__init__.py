# SPDX-License-Identifier: Apache-2.0
"""What is done without being asked: expiry, retention, quotas and the reserve of the disk."""
