# SPDX-License-Identifier: Apache-2.0
"""Values of schemas as Arrow columns, and back. Needs numpy and pyarrow, which brokers do not."""
