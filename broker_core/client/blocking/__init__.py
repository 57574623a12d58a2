# SPDX-License-Identifier: Apache-2.0
"""The blocking front door and its handles, over the event loop's own thread."""
