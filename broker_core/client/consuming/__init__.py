# SPDX-License-Identifier: Apache-2.0
"""Messages on their way to the application: consumers and readers, receiver queues, redelivery."""
