# SPDX-License-Identifier: Apache-2.0
"""PROTOBUF_NATIVE schemas: a set of descriptors, in which files are found by name and in any order."""

from __future__ import annotations

import base64
import json
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from broker_core.base.errors import PulsarishError

FILES_MAX: Final = 1000
SIZE_MAX: Final = 1 << 20


class DescriptorError(PulsarishError):
    """The descriptors of a schema do not make up its message."""


def root_message(data: bytes) -> str:
    """The full name of the message that a schema describes; DescriptorError if its descriptors are not whole."""
    return root_descriptor(data).full_name


def root_descriptor(data: bytes) -> Descriptor:
    """The descriptor of that message, in a pool of its own; DescriptorError."""
    if len(data) > SIZE_MAX:
        raise DescriptorError(f"the descriptors have {len(data)} bytes, and at most {SIZE_MAX} are taken")
    try:
        fields = json.loads(data)
        files = FileDescriptorSet.FromString(base64.b64decode(fields["fileDescriptorSet"], validate=True))
        root, file = str(fields["rootMessageTypeName"]), str(fields["rootFileDescriptorName"])
    except (ValueError, TypeError, KeyError, RecursionError, DecodeError) as error:
        raise DescriptorError("it is no JSON object with a set of descriptors, a message and a file") from error
    return _descriptor(files, root, file)


def _descriptor(files: FileDescriptorSet, root: str, file: str) -> Descriptor:
    if len(files.file) > FILES_MAX:
        raise DescriptorError(f"there are {len(files.file)} files, and at most {FILES_MAX} are taken")
    by_name = {each.name: each for each in files.file}
    if file not in by_name:
        raise DescriptorError(f"file {file!r} is not among the descriptors")
    pool = DescriptorPool()
    done: set[str] = set()
    pending = [file]
    while pending:
        each = pending[-1]
        if each not in by_name:
            raise DescriptorError(f"file {each!r} is imported, and not among the descriptors")
        missing = [name for name in by_name[each].dependency if name not in done]
        if any(name in pending for name in missing):
            raise DescriptorError(f"the imports of file {each!r} lead back to it")
        pending.extend(missing[:1])
        if not missing:
            try:
                pool.Add(by_name[each])
            except TypeError as error:
                raise DescriptorError(f"file {each!r} cannot be read: {error}") from error
            done.add(pending.pop())
    try:
        pool.FindFileByName(file)
        return pool.FindMessageTypeByName(root)
    except (KeyError, TypeError) as error:
        raise DescriptorError(f"message {root!r} is not among the descriptors") from error
