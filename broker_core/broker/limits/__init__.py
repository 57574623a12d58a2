# SPDX-License-Identifier: Apache-2.0
"""How much a topic may hold and for how long: backlog quotas, the reserve of the disk, the clock that ages go by."""
