# SPDX-License-Identifier: Apache-2.0
"""The module that Spark discovers: each top-level one named ``pyspark_*`` with a ``DefaultSource`` registers a format.

It must not fail: one broken module of this kind disables the discovery of all Python sources. So an installation that
lacks something, or has it in a version that does not fit, only means that this format is not found, with a warning
that says why.
"""

import warnings

try:
    from pulsarish_spark.source import PulsarishSource as DefaultSource
except Exception as error:  # noqa: BLE001 - of any kind: protobuf has one of its own for a version that does not fit
    warnings.warn(f'the format "pulsarish" is not available: {error}', stacklevel=1)

__all__ = ["DefaultSource"]
