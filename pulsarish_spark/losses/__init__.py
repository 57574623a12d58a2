# SPDX-License-Identifier: Apache-2.0
"""What counts as lost data, and what is done about it."""
