# SPDX-License-Identifier: Apache-2.0
# C functions of fields.py that other modules of the core call.
cdef int OTHER, NESTED, SOUND, CUT, VARINT_TOO_LONG, BAD_TAG, HALF_PAIR
cdef (long long, Py_ssize_t) varint(const unsigned char* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil
cdef long long u32(const unsigned char* data, Py_ssize_t at) noexcept nogil
cdef (int, long long, Py_ssize_t) walk_fields(
    const unsigned char* data, Py_ssize_t at, Py_ssize_t end, const unsigned char* slots, long long* fields,
    int* names, int* texts, Py_ssize_t room, Py_ssize_t count) noexcept nogil
cdef int varint_size(long long number) noexcept nogil
cdef Py_ssize_t put_varint(unsigned char* out, Py_ssize_t at, long long number) noexcept nogil
cdef Py_ssize_t put_u32(unsigned char* out, Py_ssize_t at, long long value) noexcept nogil
cdef Py_ssize_t put_bytes(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t start, Py_ssize_t end) noexcept nogil
cdef Py_ssize_t field_end(const unsigned char* data, int wire_type, Py_ssize_t at, Py_ssize_t end) noexcept nogil
