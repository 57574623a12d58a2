# SPDX-License-Identifier: Apache-2.0
"""Entry point for tools that still look for it; everything is declared in pyproject.toml."""

import sys

import setuptools

# The version that [build-system] of pyproject.toml asks for. An older one prints its whole schema of that file instead.
_SETUPTOOLS_MIN = 77

if int(setuptools.__version__.partition(".")[0]) < _SETUPTOOLS_MIN:
    sys.exit(
        f"error: setuptools {setuptools.__version__} cannot read pyproject.toml, it takes {_SETUPTOOLS_MIN} or newer: "
        "use pip install ., which brings one, or pip install -U setuptools"
    )

setuptools.setup()
