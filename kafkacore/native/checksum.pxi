# CRC-32C and murmur2 for Python.

cdef extern from "crc32c.h" nogil:
    void kc_crc32c_init()
    uint32_t kc_crc32c(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from "murmur2.h" nogil:
    int32_t kc_murmur2(const uint8_t* p, size_t n)

kc_crc32c_init()


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
    if type(buffer) is bytes:
        return kc_crc32c(value, <const uint8_t*>PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer))
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    crc = kc_crc32c(value, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


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
