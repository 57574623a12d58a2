# SPDX-License-Identifier: Apache-2.0
"""Who a client is, and what it may do: authentication, rights, TLS of a broker's ports."""
