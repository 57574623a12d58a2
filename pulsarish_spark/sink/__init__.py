# SPDX-License-Identifier: Apache-2.0
"""The sink: from Spark's rows to entries on the broker."""
