# PooledBuffer: memory for frames and batches that is reused warm.
#
# A fresh megabyte from the system costs a page fault per 4 KiB, which is more than receiving or copying into it. Blocks are rounded up to a power of
# two and kept, newest first, in one list per size for the whole process. At most POOL_KEEP_BYTES stay; the rest goes back to the system.
# A block that no buffer took for POOL_AGE_MS goes back, too: each poll of a selector passes the time to `pool_age`, and no thread wakes up for it.
# Blocks are never zeroed. The GIL guards the lists: the extension does not declare itself free-threaded.
from libc.stdlib cimport free, malloc, realloc


cdef extern from * nogil:
    """
    #include <stdlib.h>
    /* a cache line, so that the CRC's 64-byte loads do not straddle two */
    static void *kc_block_alloc(size_t n) { void *p; return posix_memalign(&p, 64, n) ? NULL : p; }
    """
    void* kc_block_alloc(size_t n)


cdef extern from "poison.h" nogil:
    void ASAN_POISON_MEMORY_REGION(void* p, size_t n)
    void ASAN_UNPOISON_MEMORY_REGION(void* p, size_t n)


cdef enum:
    POOL_MIN_SHIFT = 9                                  # 512 B
    POOL_MAX_SHIFT = 26                                 # 64 MiB; larger blocks are not kept
    POOL_KEEP_BYTES = 256 * 1024 * 1024                 # answers of fetch.max.bytes (50 MiB) from three brokers, and buffer.memory (32 MiB)

    POOL_AGE_MS = 30_000

cdef struct PoolBlock:                                  # lies in the first bytes of a kept block
    PoolBlock* next

cdef PoolBlock* pool_lists[POOL_MAX_SHIFT + 1]
cdef Py_ssize_t[POOL_MAX_SHIFT + 1] pool_counts         # blocks in each list
cdef Py_ssize_t[POOL_MAX_SHIFT + 1] pool_fewest         # the fewest there have been since pool_aged_ms: these were not needed
cdef int64_t pool_aged_ms = 0
cdef Py_ssize_t pool_kept_bytes = 0
cdef Py_ssize_t pool_hits = 0
cdef Py_ssize_t pool_misses = 0


cdef inline int pool_shift(Py_ssize_t nbytes) noexcept nogil:
    """log2 of the block size for nbytes, or -1 when blocks of that size are not pooled."""
    cdef int shift = POOL_MIN_SHIFT
    while (<Py_ssize_t>1 << shift) < nbytes:
        shift += 1
        if shift > POOL_MAX_SHIFT:
            return -1
    return shift


cdef uint8_t* pool_take(int shift, Py_ssize_t nbytes) except NULL:
    global pool_kept_bytes, pool_hits, pool_misses
    cdef PoolBlock* block
    if shift >= 0 and pool_lists[shift] != NULL:
        block = pool_lists[shift]
        ASAN_UNPOISON_MEMORY_REGION(block, <size_t>1 << shift)
        pool_lists[shift] = block.next
        pool_counts[shift] -= 1
        if pool_counts[shift] < pool_fewest[shift]:
            pool_fewest[shift] = pool_counts[shift]
        pool_kept_bytes -= <Py_ssize_t>1 << shift
        pool_hits += 1
        ASAN_POISON_MEMORY_REGION(<uint8_t*>block + nbytes, (<size_t>1 << shift) - nbytes)
        return <uint8_t*>block
    pool_misses += 1
    block = <PoolBlock*>kc_block_alloc(<size_t>1 << shift if shift >= 0 else <size_t>nbytes)
    if block == NULL:
        raise MemoryError(f"no memory for a buffer of {nbytes} bytes")
    if shift >= 0:
        ASAN_POISON_MEMORY_REGION(<uint8_t*>block + nbytes, (<size_t>1 << shift) - nbytes)
    return <uint8_t*>block


cdef void pool_give(uint8_t* ptr, int shift) noexcept:
    global pool_kept_bytes
    cdef PoolBlock* block = <PoolBlock*>ptr
    cdef Py_ssize_t size
    if shift >= 0:                                      # what lay behind the buffer's size, too
        ASAN_UNPOISON_MEMORY_REGION(ptr, <size_t>1 << shift)
    if shift < 0 or pool_kept_bytes + (<Py_ssize_t>1 << shift) > POOL_KEEP_BYTES:
        free(ptr)
        return
    size = <Py_ssize_t>1 << shift
    block.next = pool_lists[shift]
    pool_lists[shift] = block
    pool_counts[shift] += 1
    pool_kept_bytes += size
    ASAN_POISON_MEMORY_REGION(block, size)


cdef inline bint pool_has(Py_ssize_t nbytes) noexcept:
    """Whether a buffer of that size would take no new memory."""
    cdef int shift = pool_shift(nbytes)
    return shift >= 0 and pool_lists[shift] != NULL


cdef Py_ssize_t pool_drop(int shift, Py_ssize_t count) noexcept:
    """Frees the `count` blocks of a list that have lain there longest; returns their bytes."""
    global pool_kept_bytes
    cdef PoolBlock** link = &pool_lists[shift]
    cdef PoolBlock* block
    cdef Py_ssize_t stays = pool_counts[shift] - count
    while link[0] != NULL:
        block = link[0]
        ASAN_UNPOISON_MEMORY_REGION(block, sizeof(PoolBlock))
        if stays > 0:
            stays -= 1
            link = &block.next                          # its head stays readable until it is taken or freed
            continue
        ASAN_UNPOISON_MEMORY_REGION(block, <size_t>1 << shift)
        link[0] = block.next
        free(block)
    pool_counts[shift] -= count
    pool_kept_bytes -= count << shift
    return count << shift


cdef Py_ssize_t pool_age(int64_t now_ms) noexcept:
    """Frees, once in POOL_AGE_MS, the blocks that lay in their list all the time since the last look; returns their bytes."""
    global pool_aged_ms
    cdef Py_ssize_t freed = 0
    cdef int shift
    if 0 <= now_ms - pool_aged_ms < POOL_AGE_MS:
        return 0
    if now_ms >= pool_aged_ms:                          # else: another clock
        for shift in range(POOL_MAX_SHIFT + 1):
            if pool_fewest[shift]:
                freed += pool_drop(shift, pool_fewest[shift])
            pool_fewest[shift] = pool_counts[shift]
    pool_aged_ms = now_ms
    return freed


@cython.final
cdef class ReceiveMemory:
    """How much the frames of a selector's connections may hold together: queued.max.request.bytes.

    A frame is counted with the size it announces, from its first byte until the last view of it is released. While `limit_bytes` or more are
    counted, no connection begins another frame; one that begins may go beyond, or large frames would never get their turn.

    Args:
        limit_bytes: the bound, at least 1.

    Source: org.apache.kafka.common.memory.SimpleMemoryPool.
    """

    cdef readonly Py_ssize_t limit_bytes
    cdef readonly Py_ssize_t used_bytes

    def __cinit__(self, Py_ssize_t limit_bytes):
        if limit_bytes < 1:
            raise ValueError(f"limit_bytes must be at least 1: {limit_bytes}")
        self.limit_bytes = limit_bytes

    @property
    def available(self):
        """Whether another frame may begin."""
        return self.used_bytes < self.limit_bytes


@cython.final
@cython.no_gc                                           # ReceiveMemory refers to nothing, so there is no cycle through it
@cython.freelist(32)
cdef class PooledBuffer:
    """A writable buffer of `nbytes` bytes from the process-wide pool; its memory returns there when the last view of it is released.

    The contents are whatever was there before: write before reading.

    Args:
        nbytes: size in bytes.

    Raises:
        ValueError: nbytes is negative.
        MemoryError: the system has no block of that size.
    """
    cdef uint8_t* ptr
    cdef readonly Py_ssize_t nbytes
    cdef int shift
    cdef Py_ssize_t exports                             # open views
    cdef ReceiveMemory memory                           # where `counted` bytes are to be given back, or None
    cdef Py_ssize_t counted

    def __cinit__(self, Py_ssize_t nbytes):
        if nbytes < 0:
            raise ValueError(f"nbytes must not be negative: {nbytes}")
        self.shift = pool_shift(nbytes)
        self.ptr = pool_take(self.shift, nbytes)
        self.nbytes = nbytes

    def __dealloc__(self):
        if self.ptr != NULL:
            pool_give(self.ptr, self.shift)
        if self.memory is not None:
            self.memory.used_bytes -= self.counted

    cdef void count(self, ReceiveMemory memory, Py_ssize_t nbytes) noexcept:
        """Counts nbytes until this buffer is freed."""
        self.memory = memory
        self.counted = nbytes
        memory.used_bytes += nbytes

    cdef bint stretch(self, Py_ssize_t nbytes) except -1:
        """Makes it larger, without a copy where the system can move pages; False when a view is open, which would point to nowhere."""
        global pool_misses
        cdef int shift = pool_shift(nbytes)
        cdef size_t size = <size_t>1 << shift if shift >= 0 else <size_t>nbytes
        cdef void* block
        if self.exports:
            return False
        if self.shift >= 0:
            ASAN_UNPOISON_MEMORY_REGION(self.ptr, <size_t>1 << self.shift)
        if shift < 0 or shift != self.shift:
            pool_misses += 1
            block = realloc(self.ptr, size)
            if block == NULL:
                raise MemoryError(f"no memory for a buffer of {nbytes} bytes")
            self.ptr = <uint8_t*>block
            self.shift = shift
        self.nbytes = nbytes
        if shift >= 0:
            ASAN_POISON_MEMORY_REGION(self.ptr + nbytes, size - <size_t>nbytes)
        return True

    cdef void count_for(self, PooledBuffer other) noexcept:
        """Takes over what the other buffer counts."""
        self.memory, self.counted = other.memory, other.counted
        other.memory = None

    def __len__(self):
        return self.nbytes

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.ptr, self.nbytes, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    def __repr__(self):
        return f"PooledBuffer({self.nbytes})"


@cython.final
@cython.no_gc                                           # as PooledBuffer
@cython.freelist(256)
cdef class BufferStart:
    """The first `nbytes` bytes of a PooledBuffer, as a piece of a gather list; the collector does not walk it, as it would a memoryview."""
    cdef PooledBuffer buffer
    cdef readonly Py_ssize_t nbytes

    def __len__(self):
        return self.nbytes

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.buffer.ptr, self.nbytes, 1, flags)
        self.buffer.exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.buffer.exports -= 1


cdef BufferStart buffer_start(PooledBuffer buffer, Py_ssize_t nbytes):
    cdef BufferStart piece
    if not 0 <= nbytes <= buffer.nbytes:
        raise InternalError(f"{nbytes} bytes of a buffer of {buffer.nbytes}")
    piece = BufferStart.__new__(BufferStart)
    piece.buffer = buffer
    piece.nbytes = nbytes
    return piece


def buffer_pool_stats():
    """The pool's state: bytes kept for reuse, and how many takes were served from it (hits) or by the system (misses)."""
    return {"kept_bytes": pool_kept_bytes, "keep_limit_bytes": POOL_KEEP_BYTES, "hits": pool_hits, "misses": pool_misses}


def buffer_pool_trim():
    """Gives every kept block back to the system.

    Returns:
        Bytes given back.
    """
    cdef Py_ssize_t freed = 0
    cdef int shift
    for shift in range(POOL_MAX_SHIFT + 1):
        freed += pool_drop(shift, pool_counts[shift])
        pool_fewest[shift] = 0
    return freed


def buffer_pool_age(int64_t now_ms):
    """Gives back the blocks that no buffer took during the last 30 s, if it is so long since that was done; every poll of a selector does it.

    Args:
        now_ms: time.

    Returns:
        Bytes given back.
    """
    return pool_age(now_ms)
