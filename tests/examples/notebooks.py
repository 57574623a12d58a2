# SPDX-License-Identifier: Apache-2.0
"""Makes the notebooks of ``examples/`` from its scripts, and runs them: ``make notebooks``.

A script in the percent form is the one source; its notebook is stored beside it with what running it showed, so that
people see tables and charts before they run anything. Owns what is kept of a run: what cells print and draw. What goes
to stderr (progress, Spark's own talk) and what differs from run to run (times, numbers of cells) is left out. All
notebooks run in one kernel, one after the other, so that they share a Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.apache_pulsar.secured import Secured, token
from tests.apache_pulsar.shared import SECURED, Host

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
OF_A_CLUSTER: Final = "secure_cluster"
NAMES: Final = (
    "a_month_of_flights",
    "work_queue",
    "late_sessions",
    "evolving_orders",
    "from_kafka",
    OF_A_CLUSTER,
    "arrow_without_spark",
)
"""Scripts that have a notebook, without their suffix, in the order in which they run."""

_CELL_TIMEOUT_S: Final = 300
_START_TIMEOUT_S: Final = 300
_END_TIMEOUT_S: Final = 60
_KEPT_METADATA: Final = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
_FORGET: Final = "%reset -f"

Notebook = Any
"""An nbformat.NotebookNode; that package tells no types."""


def of_script(name: str) -> Notebook:
    """The notebook that a script makes, without outputs."""
    notebook = jupytext.read(EXAMPLES / f"{name}.py", fmt="py:percent")
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith("# SPDX-")]
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    notebook.metadata = nbformat.from_dict(_KEPT_METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def stored(name: str) -> Notebook:
    """The notebook that lies in the repository."""
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


class Runner:
    """Runs notebooks in one kernel, one after the other."""

    def __init__(self, kernel: KernelManager) -> None:
        self._kernel = kernel

    def run(self, notebook: Notebook) -> None:
        """Run the cells and put their outputs into ``notebook``; CellExecutionError of nbclient if one fails."""
        self._execute(notebook)
        notebook.metadata = nbformat.from_dict(_KEPT_METADATA)
        for cell in notebook.cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.execution_count = None
                cell.outputs = _kept(cell.outputs)
        self._execute(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_FORGET)]))

    def _execute(self, notebook: Notebook) -> None:
        client = NotebookClient(
            notebook, km=self._kernel, timeout=_CELL_TIMEOUT_S, startup_timeout=_START_TIMEOUT_S, record_timing=False
        )
        try:
            client.execute(cleanup_kc=False)  # the kernel stays for the next one; its sockets do not
        finally:
            if client.kc is not None:
                client.kc.stop_channels()


@contextmanager
def runner(environment: Mapping[str, str]) -> Iterator[Runner]:
    """A kernel in the folder of the examples, as an editor starts one, with these variables of the environment too."""
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel(cwd=str(EXAMPLES), env={**os.environ, **environment})
    try:
        yield Runner(kernel)
    finally:
        kernel.shutdown_wait_time = _END_TIMEOUT_S  # it ends its brokers, one after the other
        kernel.shutdown_kernel()


def cluster_variables(secured: Secured, folder: Path) -> dict[str, str]:
    """Environment variables of the example of a secured cluster; the token is in a file in ``folder``."""
    role = f"role-{uuid.uuid4().hex[:8]}"
    secured.grant(role, "produce", "consume")
    (folder / "token").write_text(token(role))
    return {
        "PULSAR_URL": secured.service_url,
        "PULSAR_CA": secured.ca,
        "PULSAR_TOKEN_FILE": str(folder / "token"),
        "PULSAR_TOPIC": f"secure-{uuid.uuid4().hex[:8]}",
    }


def _kept(outputs: list[Any]) -> list[Any]:
    """Outputs without stderr; pieces of stdout joined, as how they were cut is chance."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
                continue
        if output.output_type == "execute_result":
            output.execution_count = None
        kept.append(output)
    return kept


def write(names: list[str], folder: Path) -> None:
    """Run the scripts' notebooks and store them; ``folder`` is for what the run needs."""
    host = Host()
    try:
        variables = {}
        if OF_A_CLUSTER in names:
            variables = cluster_variables(Secured(host.get(SECURED)), folder)
        with runner(variables) as running:
            for name in names:
                notebook = of_script(name)
                running.run(notebook)
                nbformat.write(notebook, EXAMPLES / f"{name}.ipynb")
                sys.stdout.write(f"examples/{name}.ipynb\n")
    finally:
        host.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the notebooks of the examples from their scripts, and run them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(NAMES)}")
    names = parser.parse_args().names or list(NAMES)
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no notebook of {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory() as folder:
        write(names, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
