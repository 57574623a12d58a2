# SPDX-License-Identifier: Apache-2.0
"""Messages on their way to the broker: batches, chunks, routing to partitions, send windows and receipts."""
