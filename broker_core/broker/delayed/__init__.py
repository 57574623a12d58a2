# SPDX-License-Identifier: Apache-2.0
"""Delayed delivery: which entries of a topic wait for their time, and whose turn it is.

A topic owns a ``TopicDelays``, a dispatcher has a tracker. Two kinds of tracker: in memory, and the
bucket tracker (``bucket_tracker`` over ``index``), whose memory does not grow with what waits. Positions and times
only, never payloads. Source: Pulsar docs, "Delayed message delivery"; PIP-195; semantics 6.
"""
