# SPDX-License-Identifier: Apache-2.0
"""All the input and output of a broker: the Pulsar port, the admin REST, the commit thread, the process.

    process ---------- signals, runtime file, idle stop, fail-stop
      broker_server -- opens store and broker, joins everything below on one event loop, stops it in order
        endpoint ----- listening sockets, connections
          security --- TLS between a socket and its connection; who a client is
          connection - bytes in and out, keep-alive
            conversation -> handlers/*   which command is allowed when, and what it does
            outbox ------ everything that waits to be written, in order, once per turn of the loop
        storage_threads group commits on one worker thread, recoveries on another
        admin/* ------ HTTP

``process.serve`` is the door; ``python -m broker_core.server`` the same as a program.
"""
