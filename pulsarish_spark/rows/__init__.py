# SPDX-License-Identifier: Apache-2.0
"""The columns of the source, and how decoded messages become them."""
