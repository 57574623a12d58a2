# SPDX-License-Identifier: Apache-2.0
"""Every setting of clients, producers and consumers, with its policies, listeners and interceptors."""
