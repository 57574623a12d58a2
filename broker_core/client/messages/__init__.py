# SPDX-License-Identifier: Apache-2.0
"""The values that applications give and get: a message to send, a received one, where to start, and flow permits.

The lowest room: it knows no other.
"""
