# SPDX-License-Identifier: Apache-2.0
"""An embedded, durable broker that speaks Apache Pulsar's wire protocol, and a client for it and for any Pulsar.

Layers, each importing only from those below it (``tests/test_layers.py`` holds them to it):

    cli  server  client  broker  storage  wire  base

``testing`` holds the simulated disk, clock and network, for our tests and for users' own.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
