# SPDX-License-Identifier: Apache-2.0
"""``python -m broker_core.server``: a broker without the command line tool, for programs that start one.

Prints the same line ``ready pulsar://... http://...`` as ``pulsarish serve`` does, and nothing else, on stdout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from broker_core.base.errors import ConfigError, PulsarishError
from broker_core.base.runtime import RuntimeInfo
from broker_core.base.settings import Settings
from broker_core.server.process import EXIT_FAILURE, EXIT_USAGE, serve


def main() -> int:
    """Serve as the arguments say; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m broker_core.server", description="Serve one data directory.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: any free one, -1: none")
    parser.add_argument("--http-port", type=int, default=0, help="likewise")
    parser.add_argument("--settings", default="{}", help="JSON object of settings by their outer names")
    args = parser.parse_args()
    try:
        settings = msgspec.json.decode(args.settings, type=Settings)
        serve(
            settings,
            data_dir=args.data_dir,
            port=args.port,
            http_port=args.http_port,
            on_ready=_print_ready,
        )
    except (msgspec.DecodeError, ConfigError) as error:
        sys.stderr.write(f"pulsarish: {error}\n")
        return EXIT_USAGE
    except (PulsarishError, OSError) as error:
        sys.stderr.write(f"pulsarish: {error}\n")
        return EXIT_FAILURE
    return 0


def _print_ready(info: RuntimeInfo) -> None:
    sys.stdout.write(f"ready {' '.join(info.urls)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
