# SPDX-License-Identifier: Apache-2.0
"""Key_Shared: messages of one key go to one consumer at a time, in order.

``selector`` and its three mappings say which consumer owns a key; ``draining`` and ``recorded_positions`` keep a key
with one consumer when the mapping changes; ``waiting_room`` has what cannot be sent yet; ``dealer`` gives out the rest.
"""
