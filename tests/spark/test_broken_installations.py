# SPDX-License-Identifier: Apache-2.0
"""What Spark discovers where this package cannot be imported: the sources of others, and a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_DISCOVERS = "import pyspark_pulsarish; print(hasattr(pyspark_pulsarish, 'DefaultSource'))"
_FAILS_BY_ITS_OWN = "class VersionError(Exception): pass\nraise VersionError('no')"
"""As protobuf where its version does not fit."""


@pytest.mark.parametrize("source", ["raise ImportError('no')", _FAILS_BY_ITS_OWN])
def test_a_package_that_cannot_be_imported_disables_no_other_source(tmp_path: Path, source: str) -> None:
    """Spark imports what it discovers in turn, and the first that fails ends that."""
    package = tmp_path / "pulsarish_spark"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "source.py").write_text(source)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", _DISCOVERS]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, 'the format "pulsarish" is not available: no' in done.stderr) == ("False\n", True)
