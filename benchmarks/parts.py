# SPDX-License-Identifier: Apache-2.0
"""The option ``--only`` of the benchmarks' commands: which parts are measured."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Collection


def add_only(parser: ArgumentParser, parts: Collection[str]) -> None:
    """Give ``parser`` the option; its value is a list of some of ``parts``, all of them by default."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(parts):
            raise ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))} (there are {', '.join(parts)})")
        return names

    parser.add_argument("--only", type=chosen, default=list(parts), help="parts, comma separated (all)")
