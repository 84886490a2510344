# The system calls of the selector, without sendmsg's and recv_into's Python objects and without dropping the GIL.
#
# sendmsg and recv ask for MSG_DONTWAIT, so they cannot block, whatever the socket's mode. A call that cannot block gains nothing from
# dropping the GIL and would wait for a switch interval (5 ms) to get it back while another thread computes. What lies in a file goes out by
# sendfile (fileslice.pxi), which knows no such flag: there the socket must be non-blocking.

cdef extern from * nogil:
    """
    #include <limits.h>
    #include <sys/socket.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    /* The arrays live on the stack (24 KiB in all, safe in musl's 128 KiB thread stacks); a longer list goes out in several calls. */
    enum { KC_IOV = 256 };
    #if defined(IOV_MAX) && IOV_MAX < 256
    #error "IOV_MAX is smaller than the gather list"
    #endif
    static ssize_t kc_sendmsg(int fd, struct iovec *iov, int n, int more) {
        struct msghdr msg;
        memset(&msg, 0, sizeof msg);
        msg.msg_iov = iov;
        msg.msg_iovlen = n;
        return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    }
    static ssize_t kc_recv(int fd, void *p, size_t n) { return recv(fd, p, n, MSG_DONTWAIT); }
    /* Linux alone heeds it in poll and epoll and grows the socket's buffer to hold so much; its end and its errors wake all the same. */
    static int kc_set_low_water(int fd, int nbytes) {
    #ifdef __linux__
        if (nbytes < 1) nbytes = 1;
        return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &nbytes, sizeof nbytes) == 0;
    #else
        (void)fd; (void)nbytes;
        return 0;
    #endif
    }
    """
    enum:
        KC_IOV
    struct iovec:
        void* iov_base
        size_t iov_len
    Py_ssize_t kc_sendmsg(int fd, iovec* iov, int n, bint more)
    Py_ssize_t kc_recv(int fd, void* p, size_t n)
    bint kc_set_low_water(int fd, int nbytes)


def send_gather(int fd, list buffers not None, Py_ssize_t skip_bytes=0, Py_ssize_t first=0):
    """Sends the joined buffers from byte `skip_bytes` on: up to 256 of them with one sendmsg, slices of files by sendfile between them.

    A caller that sends a long list in many calls says with `first` where to begin: each call looks at the list from there.

    Args:
        fd: file descriptor of a connected stream socket; non-blocking if there are slices of files.
        buffers: bytes-like objects and FileSlices; they are not copied.
        skip_bytes: bytes of the list, from buffer `first` on, that earlier calls sent.
        first: index of the first buffer that is not sent completely.

    Returns:
        Bytes sent (may be fewer than remain: call again with a larger skip_bytes), or -1 when the call would block.

    Raises:
        OSError: what the system call said (BrokenPipeError, ConnectionResetError, ...).
        KafkaStorage: a slice's file is cut, closed or cannot be read; the list cannot be sent to its end.
        ValueError: skip_bytes or first is negative or beyond the list, or the socket would block.
    """
    return gather_out(fd, buffers, first, skip_bytes, 0, False)


cdef Py_ssize_t gather_out(int fd, list buffers, Py_ssize_t first, Py_ssize_t skip_bytes, Py_ssize_t step_bytes, bint nonblocking) except -2:
    """What send_gather says. One step: with slices in the list it ends at FILE_STEP_BYTES or when the socket is full.

    step_bytes: without slices, another sendmsg follows until so many bytes are sent.
    nonblocking: the socket is known to be so, and need not be asked.
    """
    cdef Py_ssize_t at = first, skip = skip_bytes, wanted = 0, sent, total = 0
    cdef bint with_slices = False
    cdef FileSlice part
    if skip < 0:
        raise ValueError(f"skip_bytes must not be negative: {skip}")
    if not 0 <= first <= len(buffers):
        raise ValueError(f"first {first} is not in a list of {len(buffers)} buffers")
    while True:
        if at < len(buffers) and type(buffers[at]) is FileSlice:
            part = buffers[at]
            if skip >= part.nbytes:                     # sent before, or empty
                skip -= part.nbytes
                at += 1
                continue
            if not (nonblocking or with_slices or kc_is_nonblocking(fd)):
                raise ValueError("slices of files go to non-blocking sockets only")
            with_slices = True
            wanted = min(part.nbytes - skip, FILE_STEP_BYTES - total)
            sent = part.send_some(fd, skip, wanted)
            skip += wanted
        else:
            sent = send_buffers(fd, buffers, &at, &skip, &wanted)
            if wanted == 0:
                if at < len(buffers):                   # nothing but what was sent before a slice
                    continue
                if skip > 0:
                    raise ValueError(f"skip_bytes {skip_bytes} is beyond the {skip_bytes - skip} bytes of the list")
                return total
        if sent < 0:
            return total or -1
        total += sent
        if sent < wanted or total >= FILE_STEP_BYTES or at >= len(buffers):
            return total
        if not with_slices and total >= step_bytes and type(buffers[at]) is not FileSlice:
            return total


cdef Py_ssize_t send_buffers(int fd, list buffers, Py_ssize_t* first, Py_ssize_t* skipped, Py_ssize_t* wanted) except -2:
    """One sendmsg of the buffers from index first on, less skipped bytes, up to the next slice of a file.

    Sets first and skipped to where that list ends, and wanted to its bytes. Returns the bytes sent, or -1 when the call would block.
    """
    cdef iovec iov[KC_IOV]
    cdef Py_buffer views[KC_IOV]
    cdef Py_buffer* view
    cdef int n_iov = 0, n_views = 0, i
    cdef Py_ssize_t skip = skipped[0], size, sent, at = first[0]
    cdef const char* data
    cdef object item
    cdef bint own = False, more = False
    wanted[0] = 0
    try:
        while at < len(buffers) and n_iov < KC_IOV and n_views < KC_IOV:
            item = buffers[at]
            view = NULL
            if type(item) is bytes:
                data = PyBytes_AS_STRING(item)
                size = PyBytes_GET_SIZE(item)
            elif type(item) is PooledBuffer:
                data = <const char*>(<PooledBuffer>item).ptr
                size = (<PooledBuffer>item).nbytes
            elif type(item) is BufferStart:
                data = <const char*>(<BufferStart>item).buffer.ptr
                size = (<BufferStart>item).nbytes
            elif type(item) is FileSlice:
                if skip < (<FileSlice>item).nbytes:
                    more = True
                    break
                skip -= (<FileSlice>item).nbytes
                at += 1
                continue
            else:
                if not own and type(item) is not memoryview and type(item) is not bytearray:
                    buffers = list(buffers)             # its buffer protocol may be Python code, which may change the list
                    own = True
                view = &views[n_views]
                PyObject_GetBuffer(item, view, PyBUF_SIMPLE)
                n_views += 1
                data = <const char*>view.buf
                size = view.len
            at += 1
            if skip >= size:                            # sent before, or empty
                skip -= size
                if view != NULL:
                    n_views -= 1
                    PyBuffer_Release(view)
                continue
            iov[n_iov].iov_base = <void*>(data + skip)
            iov[n_iov].iov_len = size - skip
            wanted[0] += size - skip
            n_iov += 1
            skip = 0
        first[0] = at
        skipped[0] = skip
        if n_iov == 0:
            return 0
        while True:
            sent = kc_sendmsg(fd, iov, n_iov, more)
            if sent >= 0:
                return sent
            if errno == EAGAIN:  # the same number as EWOULDBLOCK on Linux, macOS and the BSDs
                return -1
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
    finally:
        for i in range(n_views):
            PyBuffer_Release(&views[i])


def recv_into(int fd, buffer not None, Py_ssize_t start, Py_ssize_t nbytes):
    """Receives up to `nbytes` bytes into `buffer` from index `start` on.

    Args:
        fd: file descriptor of a connected stream socket.
        buffer: a writable buffer.
        start: index of the first byte to write.
        nbytes: room from there, at least 1.

    Returns:
        Bytes received, 0 at the end of the stream, -1 when the call would block.

    Raises:
        OSError: what the system call said.
        ValueError: the range does not lie in the buffer, or is empty.
    """
    cdef Py_buffer view
    cdef PooledBuffer pooled
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef bint held = False
    if type(buffer) is PooledBuffer:
        pooled = buffer
        data = pooled.ptr
        size = pooled.nbytes
    else:
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        held = True
        data = <uint8_t*>view.buf
        size = view.len
    try:
        if start < 0 or nbytes < 1 or start > size or nbytes > size - start:
            raise ValueError(f"{nbytes} bytes at {start} do not lie in a buffer of {size} bytes")
        return receive_some(fd, data + start, nbytes)
    finally:
        if held:
            PyBuffer_Release(&view)


cdef Py_ssize_t receive_some(int fd, uint8_t* to, Py_ssize_t nbytes) except -2:
    cdef Py_ssize_t got
    while True:
        got = kc_recv(fd, to, nbytes)
        if got >= 0:
            return got
        if errno == EAGAIN:  # the same number as EWOULDBLOCK on Linux, macOS and the BSDs
            return -1
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
