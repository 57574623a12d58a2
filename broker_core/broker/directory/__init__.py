# SPDX-License-Identifier: Apache-2.0
"""Which tenants, namespaces and topics there are, and who is told when topics come and go."""
