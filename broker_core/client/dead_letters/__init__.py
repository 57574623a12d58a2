# SPDX-License-Identifier: Apache-2.0
"""Copies of messages for the retry topic and the dead letter topic, and the producers that send them."""
