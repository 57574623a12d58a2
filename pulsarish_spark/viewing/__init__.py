# SPDX-License-Identifier: Apache-2.0
"""Questions of the driver to the broker: ends, single entries, sizes; counting where no indexes are told."""
