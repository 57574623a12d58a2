# SPDX-License-Identifier: Apache-2.0
"""Turns figures into what is kept and shown: a JSON file under ``benchmarks/results`` and Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from benchmarks.budgets import budget_for
from benchmarks.measure import Figure

RESULTS: Final = Path(__file__).parent / "results"
_PACKAGES: Final = ("pulsarish", "pyspark", "pyarrow", "protobuf", "uvloop", "pulsar-client")


def environment() -> dict[str, Any]:
    """The machine and the versions that the figures belong to."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_at_start": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "commit": _first_line(["git", "-C", str(RESULTS.parent), "rev-parse", "--short", "HEAD"]),
        "packages": {name: _version(name) for name in _PACKAGES},
        "command": " ".join(sys.orig_argv),
    }


def save(kind: str, context: dict[str, Any], figures: Sequence[Figure]) -> Path:
    """Store everything as ``<kind>-<time>.json`` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    path = RESULTS / f"{kind}-{now:%Y%m%d-%H%M%S}.json"
    content = {"measured_at": now.isoformat(), **context, "figures": [figure.as_dict() for figure in figures]}
    path.write_text(json.dumps(content, indent=1))
    return path


def environment_lines(context: dict[str, Any]) -> str:
    """The environment as a short paragraph."""
    packages = ", ".join(f"{name} {version}" for name, version in context["packages"].items())
    return (
        f"{context['cpu']}, {context['cores']} cores, {context['memory_gib']} GiB; {context['system']}; "
        f"load at start {context['load_at_start']:.2f}\n"
        f"Python {context['python']}; {context['java']}; {packages}; commit {context['commit']}\n"
        f"command: {context['command']}"
    )


def figure_table(figures: Sequence[Figure]) -> str:
    """Medians with spread, CPU seconds and budget, one row a case."""
    rows = [["case", "median", "lowest - highest", "unit", "CPU s a run", "budget", "note"]]
    for figure in figures:
        spread = f"{amount(min(figure.values))} - {amount(max(figure.values))}" if len(figure.values) > 1 else ""
        cpu = "" if figure.median_cpu_s is None else f"{figure.median_cpu_s:.2f}"
        side = "" if figure.side == "pulsarish" else f" [{figure.side}]"
        budget = budget_for(figure, figures)
        rows.append([figure.case + side, amount(figure.median), spread, figure.unit, cpu, budget, figure.note])
    return markdown(rows)


def ratio_table(figures: Sequence[Figure], sides: Sequence[str]) -> str:
    """One row a case: the median of every side, and ours against each other side (above 1: we are better)."""
    rows = [["case", "unit", *sides, *(f"vs {side}" for side in sides[1:])]]
    by_case: dict[str, dict[str, Figure]] = {}
    for figure in figures:
        by_case.setdefault(figure.case, {})[figure.side] = figure
    for case, found in by_case.items():
        ours = found.get(sides[0])
        shown = [amount(found[side].median) if side in found else "" for side in sides]
        ratios = [_ratio(ours, found.get(side)) for side in sides[1:]]
        rows.append([case, next(iter(found.values())).unit, *shown, *ratios])
    return markdown(rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that also lines up in a terminal. The first row is the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def amount(value: float) -> str:
    """A number with three or four digits that count."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.2f} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _ratio(ours: Figure | None, theirs: Figure | None) -> str:
    if ours is None or theirs is None or not (ours.median and theirs.median):
        return ""
    ratio = ours.median / theirs.median
    return f"{ratio if ours.better == 'higher' else 1 / ratio:.2f}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"no {command[0]}"
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0] if lines else ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
