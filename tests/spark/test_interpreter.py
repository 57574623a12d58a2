# SPDX-License-Identifier: Apache-2.0
"""Which Python Spark's workers get."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from pulsarish_python import unzipped
from pulsarish_spark import use_this_python

_RUN = "import pulsarish_python; pulsarish_python.main()"
_PROBE = """
import os, sys, pyspark
print(__name__, __file__, pyspark.__file__, sys.argv[1:], sys.path[0] == os.getcwd(), "pulsarish_spark" in sys.modules)
"""


def installed_spark(home: Path, package: Path) -> Path:
    """A Spark of one module, ``pyspark.probe``: the package as a folder and, made from that, the zip file's path."""
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "probe.py").write_text(_PROBE)
    zipped = home / "python" / "lib" / "pyspark.zip"
    zipped.parent.mkdir(parents=True)
    with zipfile.ZipFile(zipped, "w") as archive:
        for module in package.iterdir():
            archive.write(module, f"pyspark/{module.name}")
    return zipped


def started_as_spark_does(zipped: Path, *arguments: str, program: str = _RUN) -> list[str]:
    """What a process of Spark's says, with the zip file in front of its path."""
    repository = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (zipped, repository)))}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("package", ["python/pyspark", "."], ids=["archive", "pip"])
def test_pyspark_comes_from_its_folder_with_bytecode(tmp_path: Path, package: str) -> None:
    """Spark's own path leads to a zip file, which every process would compile anew; all else is as with ``-m``."""
    home = tmp_path / "pyspark"
    zipped = installed_spark(home, home / package)
    said = started_as_spark_does(zipped, "-m", "pyspark.probe", "more")
    folder = (home / package).resolve()
    assert said == ["__main__", str(folder / "probe.py"), str(folder / "__init__.py"), "['more']", "True", "False"]
    assert list(folder.glob("__pycache__/__init__.*.pyc"))


def test_a_zip_file_without_its_folder_is_used_as_it_is(tmp_path: Path) -> None:
    """A Spark that is laid out in a way nobody has heard of starts as ever."""
    zipped = installed_spark(tmp_path / "spark", tmp_path / "elsewhere" / "pyspark")
    said = started_as_spark_does(zipped, "-m", "pyspark.probe")
    assert said[:2] == ["__main__", str(zipped / "pyspark" / "probe.py")]


def test_a_zip_file_near_the_root_is_used_as_it_is() -> None:
    """A container may keep it anywhere."""
    assert unzipped(["/pyspark.zip", "/opt/pyspark.zip"]) is None


def test_spark_may_have_lost_its_working_directory(tmp_path: Path) -> None:
    """A deployment may delete the folder of the one before, whose Spark still runs."""
    zipped = installed_spark(tmp_path / "pyspark", tmp_path / "pyspark")
    (tmp_path / "pyspark" / "where.py").write_text("import sys; print(sys.path[0:1])")
    program = f"import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd()); {_RUN}"
    assert started_as_spark_does(zipped, "-m", "pyspark.where", program=program) == ["['']"]


def test_the_command_is_a_python_like_any_other(tmp_path: Path) -> None:
    """Spark asks it for its version, and runs whole scripts with it."""
    zipped = installed_spark(tmp_path / "spark", tmp_path / "spark" / "python" / "pyspark")
    assert started_as_spark_does(zipped, "-c", "import sys; print(sys.argv)", "a") == ["['-c',", "'a']"]


@pytest.mark.parametrize("is_installed", [True, False])
def test_spark_gets_the_quick_start_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    """A tree that was put on the path by hand has no commands beside its interpreter."""
    if is_installed:
        (tmp_path / "pulsarish-python").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.11"))
    environment: dict[str, str] = {}
    use_this_python(environment)
    assert environment["PYSPARK_PYTHON"] == ("pulsarish-python" if is_installed else "python3.11")


def test_workers_get_the_interpreter_of_the_driver() -> None:
    """By its name, found first on the PATH: Spark would cut a path at its first space."""
    environment = {"PATH": "/usr/bin"}
    use_this_python(environment)
    found = shutil.which(environment["PYSPARK_PYTHON"], path=environment["PATH"])
    assert found is not None
    assert os.path.samefile(Path(found).parent, Path(sys.executable).parent)
    assert environment["PATH"].endswith(os.pathsep + "/usr/bin")


def test_a_call_after_spark_has_started_says_that_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would change nothing, and the error about the format comes only later; a second call is none of that."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", object())
    with pytest.warns(UserWarning, match=r"comes too late: Spark was started before, .*; restart Python"):
        use_this_python()
    use_this_python()


def test_a_choice_of_the_user_stays() -> None:
    """Someone who set PYSPARK_PYTHON knows why."""
    environment = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}
