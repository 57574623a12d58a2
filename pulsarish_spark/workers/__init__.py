# SPDX-License-Identifier: Apache-2.0
"""The Python processes that Spark starts for the source and the sink."""
