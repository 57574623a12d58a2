# SPDX-License-Identifier: Apache-2.0
"""Compiles the core (``broker_core/wire/core``); all else is declared in pyproject.toml.

Where there is no C compiler, or no Cython, the package is installed without: the core then runs as plain Python. What
environment variables ask for: ``PULSARISH_UNCOMPILED=1`` does not compile, ``CFLAGS`` are given to the compiler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import setuptools

# The version that [build-system] of pyproject.toml asks for. An older one prints its whole schema of that file instead.
_SETUPTOOLS_MIN = 77

if int(setuptools.__version__.partition(".")[0]) < _SETUPTOOLS_MIN:
    sys.exit(
        f"error: setuptools {setuptools.__version__} cannot read pyproject.toml, it takes {_SETUPTOOLS_MIN} or newer: "
        "use pip install ., which brings one, or pip install -U setuptools"
    )

from setuptools import Extension, setup  # noqa: E402 - older versions lack some of these names
from setuptools.command.build_ext import build_ext  # noqa: E402
from setuptools.errors import CompileError, ExecError, LinkError, PlatformError  # noqa: E402

CORE = Path("broker_core/wire/core")
PLAIN = ("__init__", "mode", "uncompiled")
"""Modules that run as Python always: they decide whether the others are compiled."""
SHARED = "memory_views"
"""The module that Cython writes for its own code about memoryviews, which else stood in each module that has one."""

QUICK = [] if sys.platform == "win32" else ["-O3", "-g0"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,  # the core looks at lengths itself: a frame may lie
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "infer_types": True,  # of C types; a variable that wraps around is declared in the source
}


class BuildCore(build_ext):
    """Compiles all of the core, or says why none of it is compiled."""

    def run(self) -> None:
        self.parallel = os.cpu_count()
        try:
            super().run()
        except (CompileError, ExecError, LinkError, PlatformError) as error:
            for source in self.extensions:
                Path(self.get_ext_fullpath(source.name)).unlink(missing_ok=True)
            sys.stderr.write(f"warning: the core stays uncompiled, so that all is several times slower: {error}\n")
            self.extensions = []


def extensions() -> list[Extension]:
    """One for each module of the core."""
    if os.environ.get("PULSARISH_UNCOMPILED", "0") not in ("", "0"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        sys.stderr.write("warning: the core stays uncompiled: Cython is not installed\n")
        return []
    sources = sorted(path for path in CORE.glob("*.py") if path.stem not in PLAIN)
    modules = {".".join(path.with_suffix("").parts): path for path in [*sources, CORE / f"{SHARED}.c"]}
    return cythonize(
        [Extension(name, [str(path)], extra_compile_args=QUICK) for name, path in modules.items()],
        shared_utility_qualified_name=".".join((CORE / SHARED).parts),
        build_dir="build/core",
        compiler_directives=DIRECTIVES,
        quiet=True,
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCore})
