#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of the Spark side with another version of Spark, in an environment of its own, .venv/spark-VERSION. All other
# packages are those of .venv. It leaves out what needs an Apache Pulsar. Further arguments go to pytest.
#
#   scripts/test_spark.sh VERSION [ARGUMENT ...]

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VERSION=$1
readonly HERE=.venv/spark-$VERSION
shift

site_packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

[ -x "$HERE/bin/python" ] || .venv/bin/python -m venv --without-pip "$HERE"
printf 'import site; site.addsitedir("%s")\n' "$(site_packages .venv)" > "$(site_packages "$HERE")/of_venv.pth"
PULSARISH_UNCOMPILED=1 .venv/bin/python -m pip --python "$HERE/bin/python" install --quiet --no-input \
    --disable-pip-version-check --no-deps --no-build-isolation --ignore-installed --editable . "pyspark==$VERSION"

JAVA_HOME="$(cat .venv/.java-home)" PATH="$PWD/$HERE/bin:$PATH" exec "$HERE/bin/python" -m pytest \
    -n 4 --dist loadgroup --no-loadscope-reorder -m "not pulsar" tests/spark tests/examples tests/test_readme.py "$@"
