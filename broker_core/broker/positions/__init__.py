# SPDX-License-Identifier: Apache-2.0
"""Collections of positions that take little memory and keep their order: a set, a map, and what a consumer holds."""
