# SPDX-License-Identifier: Apache-2.0
"""Interrupts at every moment of a call, one after the other: what Ctrl-C may do only once in a thousand times."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted_at(step: int, call: Callable[[], object], files: tuple[str, ...]) -> bool:
    """Whether ``call`` got as far as ``step``, where it is interrupted: lines, calls and returns are steps.

    Only those of ``files``, names as they end, and not those of finalizers, which swallow what is raised there.
    """
    left = step

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        left -= 1
        if left < 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(usual)
    return False
