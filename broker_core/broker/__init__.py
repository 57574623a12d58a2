# SPDX-License-Identifier: Apache-2.0
"""The broker without its I/O: topics, producers, subscriptions, dispatch, acknowledgements, retention.

Pure state machines over ``storage``. Time comes in through ``Clock`` and ``Timers``, clients through the two sinks; all
calls are made on one thread.
"""
