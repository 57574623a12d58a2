# SPDX-License-Identifier: Apache-2.0
"""Installations that do not fit: Spark discovers the sources of others all the same, and an old Spark is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.types import StructType

from broker_core.base.errors import ConfigError
from pulsarish_spark.source import PulsarishSource

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


def test_a_spark_that_is_too_old_for_streams_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark 4.1 asks a Python source for its last offset and tells no limits; the first missing import would name none
    of that."""
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(ConfigError) as refused:
        PulsarishSource({}).streamReader(StructType([]))
    said = str(refused.value)
    assert "streams need Spark 4.2 or 4.3, this is 4.1.4" in said
    assert "pip install 'pyspark>=4.2,<4.4'" in said
    assert "\n" not in said
