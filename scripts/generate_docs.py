# SPDX-License-Identifier: Apache-2.0
"""Writes the documents that are made from code: ``make docs``. A test compares what is committed with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker_core.cli.config import settings_markdown
from broker_core.cli.main import PROGRAM, cli
from pulsarish_spark.options import OPTIONS, Option, Side
from pulsarish_spark.rows.schema import COLUMNS, Column
from pulsarish_spark.sink.columns import SINK_COLUMNS
from scripts.admin_docs import admin_markdown
from scripts.client_options import options_stub
from scripts.commands_docs import commands_markdown
from scripts.metrics_docs import metrics_markdown
from scripts.openapi import openapi_json
from scripts.profiles import PROFILES, profile_toml
from scripts.rights_docs import rights_markdown

REPOSITORY: Final = Path(__file__).resolve().parents[1]

_SIDES: Final[tuple[tuple[Side, str], ...]] = (
    (Side.BATCH_READ, "`read`"),
    (Side.STREAM_READ, "`readStream`"),
    (Side.BATCH_WRITE, "`write`"),
    (Side.STREAM_WRITE, "`writeStream`"),
)


def generated() -> dict[str, str]:
    """Every generated document: its path in the repository and its text."""
    return {
        "docs/settings.md": settings_markdown(),
        "docs/cli.md": commands_markdown(cli, PROGRAM),
        "docs/options.md": options_markdown(),
        "docs/admin.md": admin_markdown(),
        "docs/metrics.md": metrics_markdown(),
        "docs/rights.md": rights_markdown(),
        "docs/openapi.json": openapi_json(),
        "broker_core/client/settings/options.pyi": options_stub(REPOSITORY),
        **{f"conf/{profile.name}.toml": profile_toml(profile) for profile in PROFILES},
    }


def options_markdown() -> str:
    """The page ``docs/options.md``: options and columns of the Spark source and sink."""
    return "\n".join(
        [
            '# Options and columns of `format("pulsarish")`',
            "",
            "Made from the code by `make docs`; do not edit. Names do not depend on upper and lower case. An unknown",
            "option, or one in a place where it means nothing, is an error that suggests what was meant.",
            "",
            "No option, column, command or call changes the name of a topic or subscription. The column `topic` and",
            "options refuse a name with white space at its beginning or end, which would be a part of it; in the",
            "list of `topics` white space around a name is layout, and `topic` takes no comma. The JSON of",
            "`assign`, `startingOffsets` and `topicWeights`, the Python client, the command line and the REST take",
            "each name as it is written, as an Apache Pulsar does.",
            "",
            "| option | works in | example | meaning |",
            "|---|---|---|---|",
            *(_option_row(option) for option in OPTIONS),
            "",
            "## Columns of the source",
            "",
            "A source has the first seven, those of Spark's Kafka source, unless the option `columns` names others.",
            "",
            "| column | Spark type | meaning |",
            "|---|---|---|",
            *(_column_row(column) for column in COLUMNS),
            "",
            "## Columns of the sink",
            "",
            "Only `value` is needed. Columns of the source that a broker makes itself are left out, others are errors.",
            "Without any rows nothing is sent, and a topic that does not exist is not made, as with Kafka's sink.",
            "",
            "| column | Spark type | meaning |",
            "|---|---|---|",
            *(f"| `{name}` | {taken.type_words} | {_cell(taken.meaning)} |" for name, taken in SINK_COLUMNS.items()),
            "",
        ]
    )


def _option_row(option: Option) -> str:
    names = "`, `".join((option.name, *option.aliases))
    sides = "all" if option.sides == Side.ANY else ", ".join(name for side, name in _SIDES if side & option.sides)
    return f"| `{names}` | {sides} | `{_cell(option.example)}` | {_cell(option.meaning)} |"


def _column_row(column: Column) -> str:
    return f"| `{column.name}` | {column.type} | {_cell(column.meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for path, text in generated().items():
        (REPOSITORY / path).write_text(text, encoding="utf-8")
