# SPDX-License-Identifier: Apache-2.0
"""Messages on their way in: subscriptions, permits, the receiver queue, and redelivery."""
