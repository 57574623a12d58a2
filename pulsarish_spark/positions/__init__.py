# SPDX-License-Identifier: Apache-2.0
"""Reading by positions: batches that are ranges between two positions of each partition."""
