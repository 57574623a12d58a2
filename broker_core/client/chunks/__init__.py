# SPDX-License-Identifier: Apache-2.0
"""Messages that are larger than an entry may be: cutting them into chunks, and putting chunks together again."""
