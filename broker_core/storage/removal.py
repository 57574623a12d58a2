# SPDX-License-Identifier: Apache-2.0
"""Files that are written once and removed whole: those of buckets and of views."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from broker_core.storage.context import StoreContext


def remove_files(context: StoreContext, directory: str, names: Sequence[str]) -> None:
    """Remove files of ``directory`` in the background, as far as they are there, once all changes up to now are
    durable. Nothing happens if the store has failed."""
    disk, commits = context.disk, context.commits
    paths = [f"{directory}/{name}" for name in names]
    if not paths or commits.error is not None:
        return

    def unlink() -> None:
        for path in paths:
            with suppress(FileNotFoundError, IsADirectoryError):  # a folder of that name is none of ours
                disk.unlink(path)
        disk.sync_dir(directory)

    def forget() -> None:
        for path in paths:
            commits.forget(path)

    commits.submit(unlink, forget)
