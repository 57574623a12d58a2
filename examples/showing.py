# SPDX-License-Identifier: Apache-2.0
"""Shows the charts of the examples: below its cell in a notebook, as a file in the folder ``work`` elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from matplotlib.figure import Figure


def show(figure: Figure, name: str) -> None:
    """Show ``figure``; ``name`` is that of the file."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import Image, display

        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=80)
        display(Image(picture.getvalue()))  # type: ignore[no-untyped-call]
        return
    path = Path("work") / name
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100)
    print(f"chart: {path}")
