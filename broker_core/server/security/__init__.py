# SPDX-License-Identifier: Apache-2.0
"""Identity and rights of clients: authentication, the table of rights, TLS of a broker's ports."""
