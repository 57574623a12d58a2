# SPDX-License-Identifier: Apache-2.0
"""Which tenants, namespaces and topics exist: registry, rules of creation, loading, growth, deletion, watches."""
