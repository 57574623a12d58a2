# SPDX-License-Identifier: Apache-2.0
"""What the broker does to its topics at intervals: retention, expiry, quotas, the end of unused subscriptions."""
