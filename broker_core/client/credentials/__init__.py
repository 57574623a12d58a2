# SPDX-License-Identifier: Apache-2.0
"""Who the client is, and whom it believes: tokens, passwords, certificates."""
