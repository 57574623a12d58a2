#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The wheel of dist/ in an environment that has nothing else: its core is compiled, and messages go through a broker
# and the codec. Everything happens in a folder of its own, so that no source is found by chance.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wheel=$(ls -t "$PWD"/dist/pulsarish-*.whl | head -n 1)
.venv/bin/python -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$wheel"
cp scripts/try_wheel.py "$folder"
cd "$folder"
unset PYTHONPATH
env/bin/pulsarish version
env/bin/python try_wheel.py
