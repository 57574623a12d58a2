# SPDX-License-Identifier: Apache-2.0
"""One batch of a query as a file: exported from the broker by its checkpoint, read again without any broker."""
