# SPDX-License-Identifier: Apache-2.0
"""Where the process of ``pulsarish`` begins: Ctrl-C while the commands are still being imported ends it without a word.

Knows nothing of the commands, and must import nothing before it knows what to do on Ctrl-C.
"""

import signal


def main() -> int:
    """Import the commands and run the one of the process's command line; its exit code."""
    # By the signal itself, which shells show as 130. A shell that ignores it for its background jobs is left alone.
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from broker_core.cli.main import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
