# SPDX-License-Identifier: Apache-2.0
"""The parts of ``flights_etl.py``: the source data, the Spark job, its check, chart, progress lines and chaos."""
