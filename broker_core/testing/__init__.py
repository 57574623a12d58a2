# SPDX-License-Identifier: Apache-2.0
"""Tools for testing: ours, and yours. No product code imports them.

pytest_plugin    the fixture ``pulsarish_broker``, by docs/testing.md
running_broker   a real broker process: start, stop, kill, start again on the same data
raw_client       the protocol frame by frame, also wrongly
sim_disk         a disk that loses what was not synced, and fails on command
virtual_timers   a clock that moves only when told
"""
