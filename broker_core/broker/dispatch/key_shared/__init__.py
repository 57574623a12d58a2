# SPDX-License-Identifier: Apache-2.0
"""Key_Shared: messages of one key go to one consumer at a time, in order.

``selector`` and its three mappings say whose a key is; ``draining`` and ``recorded_positions`` keep a key with one
consumer when the mapping changes; ``waiting`` holds what cannot be sent yet; ``dispatcher`` puts them together.
"""
