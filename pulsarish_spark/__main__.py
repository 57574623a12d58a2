# SPDX-License-Identifier: Apache-2.0
"""``python -m pulsarish_spark``: what the Spark side can tell without running a job."""

from pulsarish_spark.commands import main

main()
