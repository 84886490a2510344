# Writing to a log: the pieces of a batch at a position of a file, with one system call.
#
# os.pwritev drops the GIL and would wait for a switch interval (5 ms) to get it back while another thread computes; copying a batch into the
# page cache takes some microseconds. Larger writes drop it.

cdef extern from * nogil:
    """
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>
    static ssize_t kc_pwritev(int fd, struct iovec *iov, int n, int64_t at) {
    #if defined(__APPLE__)          /* pwritev came late there */
        ssize_t done = 0;
        for (int i = 0; i < n; i++) {
            ssize_t written = pwrite(fd, iov[i].iov_base, iov[i].iov_len, (off_t)(at + done));
            if (written < 0) return done ? done : -1;
            done += written;
            if ((size_t)written < iov[i].iov_len) break;
        }
        return done;
    #else
        return pwritev(fd, iov, n, (off_t)at);
    #endif
    }
    """
    Py_ssize_t kc_pwritev(int fd, iovec* iov, int n, int64_t at)

cdef enum:
    WRITE_PIECES = 8
    WRITE_NOGIL_BYTES = 256 * 1024


def write_at(int fd, pieces not None, int64_t position):
    """Writes joined buffers at a position of a file.

    Args:
        fd: a file open for writing.
        pieces: at most 8 bytes-like objects; they are not copied.
        position: of the first byte.

    Returns:
        Bytes written; fewer than given where the disk is nearly full or a signal came. Call again with the rest.

    Raises:
        OSError: what the system call said (no space left, ...); nothing was written.
        ValueError: too many pieces, or a negative position.
    """
    cdef iovec iov[WRITE_PIECES]
    cdef Py_buffer views[WRITE_PIECES]
    cdef int count = 0, i, failure
    cdef Py_ssize_t total = 0, written
    if position < 0:
        raise ValueError(f"position must not be negative: {position}")
    try:
        for piece in pieces:
            if count == WRITE_PIECES:
                raise ValueError(f"at most {WRITE_PIECES} pieces can be written at once")
            PyObject_GetBuffer(piece, &views[count], PyBUF_SIMPLE)
            iov[count].iov_base = views[count].buf
            iov[count].iov_len = views[count].len
            total += views[count].len
            count += 1
        while True:
            if total > WRITE_NOGIL_BYTES:
                with nogil:
                    written = kc_pwritev(fd, iov, count, position)
                    failure = errno
            else:
                written = kc_pwritev(fd, iov, count, position)
                failure = errno
            if written >= 0:
                return written
            if failure != EINTR:
                raise OSError(failure, os_strerror(failure))
            PyErr_CheckSignals()
    finally:
        for i in range(count):
            PyBuffer_Release(&views[i])
