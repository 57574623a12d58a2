# SPDX-License-Identifier: Apache-2.0
"""What the driver asks the broker: ends, single entries, sizes; and how it counts where no indexes are told."""
