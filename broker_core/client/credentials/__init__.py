# SPDX-License-Identifier: Apache-2.0
"""Credentials of the client (tokens, passwords, certificates), and the CAs that it trusts."""
