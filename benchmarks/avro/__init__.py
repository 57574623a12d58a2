# SPDX-License-Identifier: Apache-2.0
"""The jar of Spark's from_avro, resolved through Maven."""
