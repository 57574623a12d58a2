# SPDX-License-Identifier: Apache-2.0
"""Messages on their way out: batches, routing, send windows and receipts."""
