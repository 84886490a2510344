# FileSlice: bytes of a file on their way to a socket, without passing through this process (sendfile).
#
# Rules:
#  1. A slice names bytes that never change: a log's, below its end. A file that got shorter all the same ends the connection with
#     KafkaStorage: the frame's size has been promised, and nothing else may replace the missing bytes.
#     [test_a_file_cut_under_a_slice_is_an_error_and_nothing_else_is_sent]
#  2. A slice keeps its owner, and a SharedFile its descriptor until the last slice is freed, closed or not. A deleted file's bytes stay
#     readable as long. Of any other owner `fileno()` is asked at each use, so a descriptor that was closed is never used.
#     [test_a_closed_and_deleted_file_is_readable_while_a_slice_lives, test_an_owner_of_another_kind_is_asked_each_time]
#  3. A slice is no buffer: who wants its bytes says so with `read`, piece by piece if they are many. [test_a_slice_is_no_buffer]
#
# File pages may have to come from a disk. A system call on pages that are in memory keeps the GIL, as everywhere in sock.pxi; one that
# would wait for the disk drops it. Asked once for what one call is to move, though the socket may take it in several.

from os import strerror as os_strerror

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, EINVAL, EIO, ENOSYS, errno
from libc.stdint cimport INT64_MAX

from kafkacore.errors import KafkaStorage

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>
    #ifndef MSG_NOSIGNAL            /* macOS: Python ignores SIGPIPE already */
    #define MSG_NOSIGNAL 0
    #endif
    #ifndef MSG_MORE                /* macOS */
    #define MSG_MORE 0
    #endif
    #if defined(__linux__)
    #include <sys/sendfile.h>
    #include <sys/syscall.h>
    #endif

    /* Whether reading this byte would wait for a disk. "No" where the system or the file system cannot tell. */
    static int kc_is_cold(int fd, int64_t at) {
    #if defined(__linux__) && defined(SYS_preadv2) && defined(__LP64__)
        char byte;
        struct iovec to = {&byte, 1};
        return syscall(SYS_preadv2, fd, &to, 1, (long)at, 0L, 8 /* RWF_NOWAIT */) < 0 && errno == EAGAIN;
    #else
        (void)fd; (void)at;
        return 0;
    #endif
    }
    /* Bytes moved from the file to the socket, 0 at the file's end, -1 with errno. ENOSYS and EINVAL: not for this file or system. */
    static ssize_t kc_sendfile(int sock, int file, int64_t at, size_t n) {
    #if defined(__linux__)
        off_t from = (off_t)at;
        return sendfile(sock, file, &from, n);
    #elif defined(__APPLE__)
        off_t moved = (off_t)n;
        int rc = sendfile(file, sock, (off_t)at, &moved, NULL, 0);
        return rc == 0 || moved > 0 ? (ssize_t)moved : -1;   /* interrupted or full after a part: the part counts */
    #else
        (void)sock; (void)file; (void)at; (void)n;
        errno = ENOSYS;
        return -1;
    #endif
    }
    static ssize_t kc_send_bytes(int fd, const void *p, size_t n) { return send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL); }
    static int kc_is_nonblocking(int fd) { int flags = fcntl(fd, F_GETFL); return flags < 0 || (flags & O_NONBLOCK) != 0; }
    """
    bint kc_is_cold(int fd, int64_t at)
    Py_ssize_t kc_sendfile(int sock, int file, int64_t at, size_t n)
    Py_ssize_t kc_send_bytes(int fd, const void* p, size_t n)
    bint kc_is_nonblocking(int fd)
    Py_ssize_t c_pread "pread"(int fd, void* to, size_t n, int64_t at)
    int c_close "close"(int fd)

cdef enum:
    # One step of a send. More would let one connection with a fast reader hold the loop.
    FILE_STEP_BYTES = 1024 * 1024
    FILE_COPY_BYTES = 64 * 1024                # where there is no sendfile


@cython.final
cdef class SharedFile:
    """A descriptor that stays open until it is closed and its last slice is freed.

    Args:
        fd: an open, readable file; it belongs to this object from now on.
    """

    cdef int fd
    cdef Py_ssize_t slices
    cdef bint closing

    def __cinit__(self, int fd):
        self.fd = -1
        if fd < 0:
            raise ValueError(f"not a file descriptor: {fd}")
        self.fd = fd

    def fileno(self):
        """The descriptor.

        Raises:
            ValueError: the file is closed.
        """
        if self.closing:
            raise ValueError("the file is closed")
        return self.fd

    @property
    def closed(self):
        """True when `close` was called; slices made before may still be read."""
        return self.closing

    def close(self):
        """No more slices; the descriptor is closed now, or with the last slice there is. May be called twice."""
        self.closing = True
        self.release()

    cdef void release(self) noexcept:
        if self.closing and self.slices == 0 and self.fd >= 0:
            c_close(self.fd)                    # what was written through it is flushed by its writer: an error here says nothing
            self.fd = -1

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)

    def __repr__(self):
        return f"SharedFile({self.fd}{', closed' if self.closing else ''})"


@cython.final
@cython.no_gc_clear                             # the owner is told when the slice goes, also when a cycle is taken apart
@cython.freelist(32)
cdef class FileSlice:
    """Bytes of an open file, to stand where records go in a message.

    Args:
        owner: a SharedFile, or anything with `fileno()`; it is kept.
        position: of the first byte in the file.
        nbytes: how many.

    Raises:
        ValueError: a negative number, or a SharedFile that is closed.
    """

    cdef readonly object owner
    cdef readonly int64_t position
    cdef readonly Py_ssize_t nbytes
    cdef Py_ssize_t warm_to                     # a send has found the bytes before this index in memory

    def __cinit__(self, owner not None, int64_t position, Py_ssize_t nbytes):
        if position < 0 or nbytes < 0 or nbytes > INT64_MAX - position:
            raise ValueError(f"{nbytes} bytes at {position} cannot be part of a file")
        if type(owner) is SharedFile:
            (<SharedFile>owner).fileno()
            (<SharedFile>owner).slices += 1
        elif not hasattr(owner, "fileno"):
            raise TypeError(f"the owner of a slice has a fileno(); {type(owner).__name__} has none")
        self.owner = owner
        self.position = position
        self.nbytes = nbytes

    def __dealloc__(self):
        cdef SharedFile file
        if type(self.owner) is SharedFile:
            file = self.owner
            file.slices -= 1
            file.release()

    def __len__(self):
        return self.nbytes

    def __repr__(self):
        return f"FileSlice({self.owner!r}, {self.position}, {self.nbytes})"

    cdef int descriptor(self) except -1:
        cdef int fd
        if type(self.owner) is SharedFile:
            return (<SharedFile>self.owner).fd
        try:
            fd = self.owner.fileno()
        except ValueError as error:
            raise KafkaStorage(f"the file of {self.nbytes} bytes at {self.position} is not open: {error}") from error
        if fd < 0:
            raise KafkaStorage(f"the file of {self.nbytes} bytes at {self.position} is not open")
        return fd

    def read(self, Py_ssize_t start=0, Py_ssize_t nbytes=-1):
        """Reads the slice or a part of it.

        Args:
            start: index of the first byte within the slice.
            nbytes: how many; all that follow if left out.

        Returns:
            Exactly these bytes.

        Raises:
            KafkaStorage: the file is shorter, closed, or cannot be read.
            ValueError: the part does not lie in the slice.
        """
        if nbytes < 0:
            nbytes = self.nbytes - start
        if start < 0 or nbytes < 0 or start > self.nbytes or nbytes > self.nbytes - start:
            raise ValueError(f"{nbytes} bytes at {start} do not lie in a slice of {self.nbytes} bytes")
        cdef bytes out = PyBytes_FromStringAndSize(NULL, nbytes)
        self.load(<uint8_t*>PyBytes_AS_STRING(out), start, nbytes)
        return out

    cdef int load(self, uint8_t* to, Py_ssize_t start, Py_ssize_t nbytes) except -1:
        """Reads exactly nbytes from index start on."""
        cdef Py_ssize_t got, done = 0
        cdef int fd, failure
        cdef int64_t at
        while done < nbytes:
            fd = self.descriptor()
            at = self.position + start + done
            if kc_is_cold(fd, at) or kc_is_cold(fd, at + nbytes - done - 1):
                with nogil:
                    got = c_pread(fd, to + done, nbytes - done, at)
                    failure = errno
            else:
                got = c_pread(fd, to + done, nbytes - done, at)
                failure = errno
            if got > 0:
                done += got
            elif got == 0:
                self.missing(start + done)
            elif failure != EINTR:
                self.failed(failure)
            else:
                PyErr_CheckSignals()
        return 0

    cdef int missing(self, Py_ssize_t start) except -1:
        raise KafkaStorage(
            f"the file ends at {self.position + start}, inside a slice of {self.nbytes} bytes at {self.position}: it was cut while in use"
        )

    cdef int failed(self, int number) except -1:
        cause = OSError(number, os_strerror(number))
        raise KafkaStorage(f"{self.nbytes} bytes at {self.position} of a file cannot be read: {cause.strerror}") from cause

    cdef Py_ssize_t send_some(self, int sock, Py_ssize_t start, Py_ssize_t limit) except -2:
        """Moves up to limit bytes from index start on to a non-blocking socket: the count, or -1 when the call would block."""
        cdef Py_ssize_t moved, n = min(self.nbytes - start, limit)
        cdef int64_t at = self.position + start
        cdef int fd, failure
        while True:
            fd = self.descriptor()
            if start + n > self.warm_to and (kc_is_cold(fd, at) or kc_is_cold(fd, at + n - 1)):
                with nogil:
                    moved = kc_sendfile(sock, fd, at, n)
                    failure = errno
            else:
                self.warm_to = max(self.warm_to, start + n)
                moved = kc_sendfile(sock, fd, at, n)
                failure = errno
            if moved > 0:
                return moved
            if moved == 0:
                self.missing(start)
            if failure == EAGAIN:
                return -1
            if failure == EINVAL or failure == ENOSYS:
                return self.copy_some(sock, start, n)
            if failure == EIO:
                self.failed(failure)
            if failure != EINTR:
                raise OSError(failure, os_strerror(failure))
            PyErr_CheckSignals()

    cdef Py_ssize_t copy_some(self, int sock, Py_ssize_t start, Py_ssize_t limit) except -2:
        """The same through memory, for a system or a file that sendfile does not know."""
        cdef PooledBuffer copy = PooledBuffer(min(limit, FILE_COPY_BYTES))
        cdef Py_ssize_t sent
        self.load(copy.ptr, start, copy.nbytes)
        while True:
            sent = kc_send_bytes(sock, copy.ptr, copy.nbytes)
            if sent >= 0:
                return sent
            if errno == EAGAIN:
                return -1
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
