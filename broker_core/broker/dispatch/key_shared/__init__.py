# SPDX-License-Identifier: Apache-2.0
"""Key_Shared: messages of one key go to one consumer at a time, in order.

``selectors`` say which consumer owns a key; ``draining`` keeps a key with one consumer when the mapping changes;
``waiting_room`` has the entries that cannot be sent yet; ``dispatcher`` gives out the rest.
"""
