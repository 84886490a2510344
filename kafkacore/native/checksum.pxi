# CRC-32C and the hashes of keys for Python.
#
# The GIL is dropped from CRC_NOGIL_BYTES on only. A checksum of 1 MiB takes 13 us warm and some 40 us from memory (80 GB/s with 512-bit folds), while
# taking the GIL back costs up to a switch interval (5 ms) when another thread computes. At 4 MiB even the tables hold it for under 2 ms.

cdef extern from "crc32c.h" nogil:
    ctypedef uint32_t (*kc_crc_fn)(uint32_t c, const uint8_t* p, size_t n)
    struct kc_crc_kernel:
        const char* name
        kc_crc_fn fn
    kc_crc_kernel* kc_crc_kernels
    int kc_crc_kernel_count
    void kc_crc32c_init()
    uint32_t kc_crc32c(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from "murmur2.h" nogil:
    int32_t kc_murmur2(const uint8_t* p, size_t n)

cdef extern from "key_hash.h" nogil:
    void kc_crc32_init()
    uint32_t kc_crc32(const uint8_t* p, size_t n)
    uint32_t kc_fnv1a(const uint8_t* p, size_t n)

cdef extern from "Python.h":
    int PyUnicode_CompareWithASCIIString(object text, const char* other)

cdef enum:
    CRC_NOGIL_BYTES = 4 * 1024 * 1024

kc_crc32c_init()
kc_crc32_init()


def crc32c(buffer not None, uint32_t value=0):
    """CRC-32C (Castagnoli) of a buffer.

    Args:
        buffer: a contiguous bytes-like object.
        value: the checksum of the bytes before it, to continue from.

    Returns:
        The checksum, 0 to 2**32 - 1.

    Source: RFC 3720 appendix B.4; Kafka's org.apache.kafka.common.utils.Crc32C.
    """
    cdef Py_buffer view
    cdef uint32_t crc
    cdef const uint8_t* p
    cdef Py_ssize_t n
    if type(buffer) is bytes:
        p = <const uint8_t*>PyBytes_AS_STRING(buffer)
        n = PyBytes_GET_SIZE(buffer)
        if n < CRC_NOGIL_BYTES:
            return kc_crc32c(value, p, n)
        with nogil:
            crc = kc_crc32c(value, p, n)
        return crc
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    if view.len < CRC_NOGIL_BYTES:
        crc = kc_crc32c(value, <const uint8_t*>view.buf, view.len)
    else:
        with nogil:
            crc = kc_crc32c(value, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_implementations():
    """Names of the CRC-32C kernels that this processor can run; the first is the one in use."""
    cdef int i
    return tuple([kc_crc_kernels[i].name.decode("ascii") for i in range(kc_crc_kernel_count)])


def crc32c_with(str name not None, buffer not None, uint32_t value=0):
    """crc32c() by the named kernel, so that tests can hold one against another.

    Raises:
        ValueError: this processor has no such kernel.
    """
    cdef Py_buffer view
    cdef uint32_t crc
    cdef int i
    for i in range(kc_crc_kernel_count):
        if PyUnicode_CompareWithASCIIString(name, kc_crc_kernels[i].name) == 0:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
            crc = ~kc_crc_kernels[i].fn(~value, <const uint8_t*>view.buf, view.len)
            PyBuffer_Release(&view)
            return crc
    raise ValueError(f"no CRC-32C kernel {name!r} here; there are {', '.join(crc32c_implementations())}")


def murmur2(buffer not None):
    """Kafka's murmur2 of a buffer, as the keyed partitioners use it: partition = (murmur2(key) & 0x7fffffff) % partitions.

    Args:
        buffer: a contiguous bytes-like object.

    Returns:
        The hash as a signed 32-bit integer, like Java's.

    Source: Kafka's org.apache.kafka.common.utils.Utils.murmur2.
    """
    cdef Py_buffer view
    cdef int32_t h
    if type(buffer) is bytes:
        return kc_murmur2(<const uint8_t*>PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer))
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    h = kc_murmur2(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


def fnv1a(buffer not None):
    """32-bit FNV-1a of a buffer as an absolute value, as librdkafka and Sarama partition by it: partition = fnv1a(key) % partitions.

    Args:
        buffer: a contiguous bytes-like object.

    Returns:
        The hash, 0 to 2**31.

    Source: librdkafka's rd_fnv1a.
    """
    cdef Py_buffer view
    cdef uint32_t h
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    h = kc_fnv1a(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return h
