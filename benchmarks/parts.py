# SPDX-License-Identifier: Apache-2.0
"""Options that commands of the benchmarks share: ``--only`` says which parts are measured, ``--quick`` how long."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Collection


def add_only(parser: ArgumentParser, parts: Collection[str]) -> None:
    """Give ``parser`` the option; its value is a list of some of ``parts``, all of them by default."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(parts):
            raise ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))} (there are {', '.join(parts)})")
        return names

    parser.add_argument("--only", type=chosen, default=list(parts), help="parts, comma separated (all)")


def quick_wanted(description: str | None) -> bool:
    """The command line of a module that is run by itself: nothing but ``--quick``."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, one run")
    return bool(parser.parse_args().quick)
