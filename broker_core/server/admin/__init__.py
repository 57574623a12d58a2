# SPDX-License-Identifier: Apache-2.0
"""The admin REST: Pulsar's paths and JSON, on the loopback address only."""
