# SPDX-License-Identifier: Apache-2.0
"""Tools of the repository itself; nothing here is installed."""
