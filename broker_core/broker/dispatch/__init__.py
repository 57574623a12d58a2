# SPDX-License-Identifier: Apache-2.0
"""Who gets which entry, and when: the dispatchers of all subscription types, and the parts they are made of."""
