# SPDX-License-Identifier: Apache-2.0
"""``python -m broker_core``: the same as the command ``pulsarish``, where scripts of a venv are not on the PATH."""

import sys

from broker_core.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
