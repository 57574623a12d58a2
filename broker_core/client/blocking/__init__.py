# SPDX-License-Identifier: Apache-2.0
"""The blocking ``Client`` and its handles. Owns the event loop's own thread and the crossing to and from it."""
