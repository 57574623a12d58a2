# SPDX-License-Identifier: Apache-2.0
"""Messages on their way in: producers, their access modes, and deduplication."""
