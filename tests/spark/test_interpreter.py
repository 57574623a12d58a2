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


def said_in_time_or_late(tmp_path: Path, program: str, *command: str, **environment: str) -> str:
    """What Python says that runs ``program``; the first ``python3`` on the PATH is another one."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho another\n")
    other.chmod(0o755)
    script = tmp_path / "job.py"
    script.write_text(program)
    kept = {name: text for name, text in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    path = os.pathsep.join([str(other.parent), os.environ["PATH"]])
    given = {**kept, "PATH": path, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **environment}
    done = subprocess.run([*command, str(script)], env=given, capture_output=True, text=True, check=False, timeout=300)
    assert "ended" in done.stdout, done.stderr
    return done.stdout + done.stderr  # Java writes both to its stdout


_CALL = "import pulsarish_spark; pulsarish_spark.use_this_python(); print('ended')"
_STARTED = f"from pyspark import SparkContext; SparkContext._ensure_initialized(); {_CALL}"
_WHY = "Java runs already, as under spark-submit and in the pyspark shell it always does, and starts"
_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


@pytest.mark.spark
@pytest.mark.apart
def test_a_call_under_spark_submit_says_that_it_is_too_late(tmp_path: Path) -> None:
    """Java came first, with another Python for its workers than the one that it gave the driver by a setting."""
    command = (_SUBMIT, "--conf", f"spark.pyspark.python={sys.executable}")
    said = said_in_time_or_late(tmp_path, _CALL, *command)
    assert (
        f"use_this_python() comes too late: {_WHY} its Python processes with python3 ({tmp_path}/bin/python3)" in said
    )
    assert f"which is not this Python, {sys.executable}; " in said
    assert f'begin the command with PATH="{Path(sys.executable).parent}:$PATH" PYSPARK_PYTHON=' in said


@pytest.mark.spark
@pytest.mark.apart
@pytest.mark.parametrize("name", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_a_call_under_spark_submit_with_this_python_says_nothing(tmp_path: Path, name: str) -> None:
    """Nothing is too late where Java starts this Python anyway."""
    assert "too late" not in said_in_time_or_late(tmp_path, _CALL, _SUBMIT, **{name: sys.executable})


@pytest.mark.spark
@pytest.mark.apart
def test_a_call_after_spark_has_started_says_that_it_is_too_late(tmp_path: Path) -> None:
    """It would change nothing, and the error about the format comes only later."""
    said = said_in_time_or_late(tmp_path, _STARTED, sys.executable)
    assert f"comes too late: {_WHY} its Python processes with python3 (" in said
    assert "restart Python (or the notebook's kernel) and call it before the session is made" in said


@pytest.mark.spark
@pytest.mark.apart
def test_a_second_call_says_nothing(tmp_path: Path) -> None:
    """The first one came in time."""
    call = "import pulsarish_spark; pulsarish_spark.use_this_python(); "
    assert "too late" not in said_in_time_or_late(tmp_path, call + _STARTED, sys.executable)


def test_a_notebook_that_was_started_as_the_driver_has_workers_all_the_same() -> None:
    """Java would start ``jupyter`` for them, which PYSPARK_DRIVER_PYTHON names for the shell."""
    environment = {"PATH": "/usr/bin", "PYSPARK_DRIVER_PYTHON": "jupyter"}
    use_this_python(environment)
    assert environment["PYSPARK_DRIVER_PYTHON"] == environment["PYSPARK_PYTHON"]


def test_a_choice_of_the_user_stays() -> None:
    """Someone who set PYSPARK_PYTHON knows why."""
    environment = {"PYSPARK_PYTHON": "/opt/python"}
    use_this_python(environment)
    assert environment == {"PYSPARK_PYTHON": "/opt/python"}
