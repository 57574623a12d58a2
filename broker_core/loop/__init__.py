# SPDX-License-Identifier: Apache-2.0
"""The seams of ``broker_core.base`` on an asyncio event loop, which broker and client share."""
