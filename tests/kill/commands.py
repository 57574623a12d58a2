# SPDX-License-Identifier: Apache-2.0
"""The command of a rig that tells broken rules: options that each has, and what it says and keeps in the end."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Protocol


class Summary(Protocol):
    """The outcome of a run: a dataclass that JSON takes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def holds(self) -> bool: ...
    def text(self) -> str: ...


def parser_of(rig: str, description: str, *, kills: int, lies: Collection[str]) -> argparse.ArgumentParser:
    """The options of ``tests.kill.<rig>``. ``lies``: bugs that the broker may be given."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.kill.{rig}", description=description)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--lie", choices=lies, default="", help="a bug, which must be found out")
    parser.add_argument("--folder", type=Path, help="keep everything here")
    parser.add_argument("--json", type=Path, help="write the summary here too")
    return parser


def exit_code(rig: str, chosen: argparse.Namespace, run: Callable[[Path], Summary]) -> int:
    """The code of a run in its folder, which stays where a rule is broken."""
    folder: Path = (chosen.folder or Path(tempfile.mkdtemp(prefix=f"{rig}-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"seed {chosen.seed}, folder {folder}\n")
    summary = run(folder)
    if chosen.json:
        chosen.json.write_text(json.dumps(asdict(summary), indent=1))
    sys.stdout.write(summary.text() + "\n")
    if not summary.holds:
        sys.stdout.write(f"everything is kept in {folder}\n")
        return 1
    if not chosen.folder:
        shutil.rmtree(folder)
    return 0
