# SPDX-License-Identifier: Apache-2.0
"""The command ``pulsarish``. Talks to a running broker like any client; ``serve`` and ``doctor`` use data directly.

``main`` holds the tree of commands; every other module is one command, or something that several share.
"""
