# SPDX-License-Identifier: Apache-2.0
"""The compiled core: the loops over bytes of the codec, and the readers and writers of the hot commands.

Its modules are plain Python with types, in Cython's pure Python mode: ``setup.py`` compiles them, and uncompiled they
do the same, slowly. Nothing here imports numpy or pyarrow, for brokers do without them: columns are taken as buffers.

A module declares each variable of a compiled function. Uncompiled, C integers are Python's: where one of them would
wrap around, it is masked. A number above 2**31 in the source must be declared, or it stays a Python object.
"""

from broker_core.wire.core.mode import COMPILED as COMPILED
from broker_core.wire.core.mode import HINT as HINT
