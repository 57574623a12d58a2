# SPDX-License-Identifier: Apache-2.0
"""What a read would do, and whether it can, told without reading."""
