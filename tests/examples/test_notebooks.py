# SPDX-License-Identifier: Apache-2.0
"""The notebooks of the examples: made of their scripts, run for real, and fit to be looked at by anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.apache_pulsar.secured import Secured
from tests.examples.notebooks import (
    EXAMPLES,
    NAMES,
    OF_A_CLUSTER,
    Notebook,
    Runner,
    cluster_variables,
    of_script,
    runner,
    stored,
)

WITHOUT_A_CLUSTER: Final = [name for name in NAMES if name != OF_A_CLUSTER]
NOTEBOOK_BYTES_MAX: Final = 400_000
"""Size limit of a stored notebook: a chart or two, no dump of data."""

FOREIGN: Final = {
    "a path of a machine": re.compile(r"(?<![\w:/.])/(?:home|Users|root|tmp|work|usr|opt|var)/"),
    "an address": re.compile(r"\b(?:localhost|\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})\b"),
    "a URL of a broker": re.compile(r"\bpulsar(?:\+ssl)?://(?!host\b)"),
    "a colour of a terminal": re.compile(r"\x1b\["),
}
"""Words that the outputs of a stored notebook must not show."""


def printed(notebook: Notebook) -> list[str]:
    """The printed output of each code cell."""
    return ["".join(output.get("text", "") for output in cell.outputs) for cell in code_of(notebook)]


def code_of(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_every_notebook_has_its_script() -> None:
    """And the other way round: none is left behind or forgotten."""
    assert sorted(path.stem for path in EXAMPLES.glob("*.ipynb")) == sorted(NAMES)
    percent = [path.stem for path in EXAMPLES.glob("*.py") if "\n# %%" in path.read_text(encoding="utf-8")]
    assert sorted(percent) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_is_what_its_script_makes(name: str) -> None:
    """Cell by cell; ``make notebooks`` makes them so."""
    made, kept = of_script(name), stored(name)
    assert [(cell.cell_type, cell.source) for cell in kept.cells] == [(c.cell_type, c.source) for c in made.cells]
    assert [cell.id for cell in kept.cells] == [cell.id for cell in made.cells]
    assert kept.metadata == made.metadata


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_shows_a_run_that_went_well_and_nothing_of_its_machine(name: str) -> None:
    """No error, no talk, no path, no address; its check has passed; and it stays small."""
    notebook = stored(name)
    outputs = [output for cell in code_of(notebook) for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}
    assert printed(notebook)[-1].splitlines()[-1].startswith("check: passed")
    shown = "\n".join([*printed(notebook), *(str(output.get("data", {}).get("text/plain")) for output in outputs)])
    assert [what for what, pattern in FOREIGN.items() if pattern.search(shown)] == []
    assert (EXAMPLES / f"{name}.ipynb").stat().st_size < NOTEBOOK_BYTES_MAX


def ran_as_stored(running: Runner, name: str) -> None:
    """Run the code of a stored notebook: it prints what is stored, and draws as many pictures."""
    notebook = of_script(name)
    running.run(notebook)
    assert printed(notebook) == printed(stored(name))
    assert pictures(notebook) == pictures(stored(name))


def pictures(notebook: Notebook) -> list[int]:
    """How many each code cell has drawn."""
    return [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in code_of(notebook)]


@contextmanager
def new_runner(environment: dict[str, str]) -> Iterator[Runner]:
    with runner({"SPARK_LOCAL_IP": "127.0.0.1", **environment}) as running:
        yield running


@pytest.fixture(scope="module")
def running() -> Iterator[Runner]:
    """One kernel, and so one Spark, for all notebooks."""
    with new_runner({}) as one:
        yield one


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", WITHOUT_A_CLUSTER)
def test_a_notebook_runs_as_it_is_stored(running: Runner, name: str) -> None:
    """Each checks itself; here also that people see what they will get."""
    ran_as_stored(running, name)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.pulsar
def test_the_notebook_of_a_cluster_runs_as_it_is_stored(secured: Secured, tmp_path: Path) -> None:
    """On a real Apache Pulsar with TLS and tokens, by a role that may produce and consume."""
    with new_runner(cluster_variables(secured, tmp_path)) as running:
        ran_as_stored(running, OF_A_CLUSTER)
