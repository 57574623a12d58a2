#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests with the oldest versions of all dependencies, in an environment of their own, .venv/oldest. It leaves out what
# needs an Apache Pulsar and what is slow: neither says more about old dependencies. Arguments go to pytest.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly OLDEST=.venv/oldest
readonly PINS=$OLDEST/constraints.txt

[ -x "$OLDEST/bin/python" ] || .venv/bin/python -m venv "$OLDEST"
.venv/bin/python -m scripts.oldest_versions > "$PINS"
"$OLDEST/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --constraint "$PINS" --editable '.[dev]'

JAVA_HOME="$(cat .venv/.java-home)" PATH="$PWD/$OLDEST/bin:$PATH" exec "$OLDEST/bin/python" -m pytest \
    -n 4 --dist loadgroup --no-loadscope-reorder -m "not pulsar and not slow" "$@"
