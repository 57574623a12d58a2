# SPDX-License-Identifier: Apache-2.0
"""The example finds its own package because its folder is on the path when it runs; so it must be for its tests."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
