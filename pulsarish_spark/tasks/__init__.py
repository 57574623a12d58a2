# SPDX-License-Identifier: Apache-2.0
"""Tasks: how a batch is divided, and how one task reads its part on an executor."""
