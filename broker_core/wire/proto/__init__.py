# SPDX-License-Identifier: Apache-2.0
"""Generated protobuf code of the wire protocol; see pulsar_api.proto."""
