/* Hierarchical timing wheel over one slab of nodes: pure C, no Python.
 *
 *   slab     nodes[0..used)   32 bytes each, linked by index, so that the slab may move when it grows
 *   level l  `size` sentinels in the slab, one a bucket: a ring of the nodes whose expiration falls into its tick
 *   heap     buckets that hold something, by the expiration of the bucket: the delay queue that drives the clock
 *   current  a ring of nodes whose tick has started but whose time has not come; with ticks of 1 there are none
 *   due      two rings of nodes whose time has come, waiting to be taken: those with a payload, those without
 *
 * Level 0 has ticks of tick_ms and covers `size` of them; each level above is `size` times coarser and is made when first needed. A node
 * goes to the finest level that covers it. When the bucket at the top of the heap is due, the clocks of all levels move to its expiration
 * and its nodes are added again: to a finer level, or, when none is left, to `due`. A node so moves at most once a level; adding and
 * cancelling touch a node, its two neighbours and, for the first node of a bucket, the heap, whose size is bounded by the number of
 * buckets and not of timers.
 *
 * The slab keeps the size of its fullest hour: a node that moved, or came back with another generation, would break handles.
 *
 * Rules:
 * 1. An index is valid while it is below `used`; a handle while its generation is that of its node, too.
 *    [test_a_handle_that_was_never_given_out_cancels_nothing, test_a_used_handle_is_not_that_of_the_next_timer_in_its_place]
 * 2. A bucket is in the heap exactly while its expiration is not KW_IDLE: while it holds nodes of that tick, or held some until they were
 *    cancelled and not looked at since. [test_the_queue_has_the_buckets_of_all_levels_the_next_one_first,
 *    test_a_wheel_of_cancelled_timers_has_no_deadline]
 * 3. Never early: a node reaches `due` only when the time is at or beyond its expiration; from `current` when its tick ends.
 *    [test_a_timer_of_a_long_tick_is_never_early_and_less_than_a_tick_late]
 * 4. The clocks never pass a bucket without emptying it: its next round would have another expiration.
 *    [test_what_the_clock_passed_waits_until_it_is_taken]
 *
 * Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987); org.apache.kafka.server.util.timer.TimingWheel.
 */
#ifndef KAFKACORE_WHEEL_H
#define KAFKACORE_WHEEL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "poison.h"

#define KW_MAX_LEVELS 62                 /* size 2, tick 1: 2^61 */
#define KW_NONE (-1)
#define KW_LOOK 16
#define KW_IDLE INT64_MIN
#define KW_FOREVER (INT64_MAX / 4)      /* expirations beyond are taken as this: nothing overflows in the arithmetic on them */

enum { KW_FREE = 0, KW_LINKED = 1, KW_DUE = 2, KW_SENTINEL = 3 };

typedef struct {
    int32_t next, prev;
    uint32_t generation;
    int32_t state;
    int64_t expiration;
    void *payload;                       /* the wheel never looks at it, but for NULL */
} kw_node;

typedef struct {
    int64_t tick, interval, now, start;  /* start: its time when it was made */
    int32_t first;                       /* index of the sentinel of bucket 0 */
    int32_t slot;                        /* bucket of `now`: (now / tick) mod size, kept so that placing a node divides once */
} kw_level;

typedef struct {
    int64_t expiration;
    int32_t bucket;
} kw_bucket;

typedef struct {
    kw_node *nodes;
    int32_t capacity, used, free_head;
    int32_t size, levels;
    int32_t due[2], current;             /* sentinels; due: [0] with a payload, [1] without */
    int64_t now;                         /* the latest time told */
    int64_t count, due_count[2];         /* nodes in all rings; of them those due */
    kw_level level[KW_MAX_LEVELS];
    kw_bucket *heap;
    int32_t heap_length, heap_capacity;
} kw_wheel;

static inline int64_t kw_floor(int64_t value, int64_t step) {
    int64_t rest = value % step;
    return value - (rest < 0 ? rest + step : rest);
}

/* ASAN reports who touches more of a free node than its generation, its state and the next free node, and who goes beyond `used`. */
static inline void kw_hide(kw_node *n) {
    ASAN_POISON_MEMORY_REGION(&n->prev, sizeof n->prev);
    ASAN_POISON_MEMORY_REGION(&n->expiration, sizeof(kw_node) - offsetof(kw_node, expiration));
}

static inline void kw_show(kw_node *n, size_t count) { ASAN_UNPOISON_MEMORY_REGION(n, count * sizeof(kw_node)); }

/* The slab has moved. */
static void kw_hide_all(kw_wheel *w) {
#if KC_ASAN
    int32_t i;
    for (i = 0; i < w->used; i++) {
        if (w->nodes[i].state == KW_FREE) kw_hide(&w->nodes[i]);
    }
#endif
    ASAN_POISON_MEMORY_REGION(w->nodes + w->used, (size_t)(w->capacity - w->used) * sizeof(kw_node));
}

/* Room for `more` nodes beyond `used`; 0, or -1 without memory. */
static int kw_reserve(kw_wheel *w, int64_t more) {
    int64_t wanted = (int64_t)w->used + more, capacity = w->capacity ? w->capacity : 64;
    kw_node *nodes;
    if (wanted <= w->capacity) return 0;
    if (wanted > INT32_MAX - 1) return -1;
    while (capacity < wanted) capacity += capacity / 2;
    if (capacity > INT32_MAX - 1) capacity = INT32_MAX - 1;
    nodes = (kw_node *)realloc(w->nodes, (size_t)capacity * sizeof(kw_node));
    if (nodes == NULL) return -1;
    w->nodes = nodes;
    w->capacity = (int32_t)capacity;
    kw_hide_all(w);
    return 0;
}

static inline int32_t kw_new_node(kw_wheel *w) {
    int32_t i = w->free_head;
    if (i != KW_NONE) {
        kw_show(&w->nodes[i], 1);
        w->free_head = w->nodes[i].next;
        return i;
    }
    if (w->used == w->capacity && kw_reserve(w, 1) < 0) return KW_NONE;
    i = w->used++;
    kw_show(&w->nodes[i], 1);
    w->nodes[i].generation = 0;
    return i;
}

static inline void kw_free_node(kw_wheel *w, int32_t i) {
    kw_node *n = &w->nodes[i];
    n->state = KW_FREE;
    n->payload = NULL;
    n->generation = (n->generation + 1) & 0x7fffffff;
    n->next = w->free_head;
    w->free_head = i;
    kw_hide(n);
}

static inline void kw_link(kw_wheel *w, int32_t ring, int32_t i) {
    kw_node *nodes = w->nodes;
    int32_t last = nodes[ring].prev;
    nodes[i].next = ring;
    nodes[i].prev = last;
    nodes[last].next = i;
    nodes[ring].prev = i;
}

static inline void kw_unlink(kw_wheel *w, int32_t i) {
    kw_node *nodes = w->nodes;
    int32_t next = nodes[i].next, prev = nodes[i].prev;
    nodes[prev].next = next;
    nodes[next].prev = prev;
}

static int32_t kw_new_sentinel(kw_wheel *w) {
    int32_t i = kw_new_node(w);
    if (i == KW_NONE) return KW_NONE;
    w->nodes[i].next = w->nodes[i].prev = i;
    w->nodes[i].state = KW_SENTINEL;
    w->nodes[i].expiration = KW_IDLE;
    w->nodes[i].payload = NULL;
    return i;
}

static int kw_new_level(kw_wheel *w, int64_t tick, int64_t now) {
    kw_level *level = &w->level[w->levels];
    int32_t capacity = (w->levels + 1) * w->size, first, i;
    kw_bucket *heap = (kw_bucket *)realloc(w->heap, (size_t)capacity * sizeof(kw_bucket));
    if (heap == NULL) return -1;
    w->heap = heap;
    w->heap_capacity = capacity;
    if (kw_reserve(w, w->size) < 0) return -1;
    first = w->used;
    w->used += w->size;
    kw_show(&w->nodes[first], (size_t)w->size);
    for (i = first; i < first + w->size; i++) {
        w->nodes[i].next = w->nodes[i].prev = i;
        w->nodes[i].generation = 0;
        w->nodes[i].state = KW_SENTINEL;
        w->nodes[i].expiration = KW_IDLE;
        w->nodes[i].payload = NULL;
    }
    level->tick = tick;
    level->interval = tick * w->size;
    level->start = now;
    level->now = kw_floor(now, tick);
    level->first = first;
    level->slot = (int32_t)(level->now / tick % w->size);
    if (level->slot < 0) level->slot += w->size;
    w->levels++;
    return 0;
}

/* The due rings alone: nodes can be kept in them, but not by time. */
static int kw_init_rings(kw_wheel *w) {
    memset(w, 0, sizeof *w);
    w->free_head = KW_NONE;
    if (kw_reserve(w, 8) < 0) return -1;
    w->due[0] = kw_new_sentinel(w);
    w->due[1] = kw_new_sentinel(w);
    w->current = kw_new_sentinel(w);
    w->now = INT64_MAX;
    return 0;
}

static int kw_init(kw_wheel *w, int64_t tick, int32_t size, int64_t start) {
    if (kw_init_rings(w) < 0) return -1;
    w->size = size;
    w->now = start;
    return kw_new_level(w, tick, start);
}

static void kw_release(kw_wheel *w) {
    free(w->nodes);
    free(w->heap);
    w->nodes = NULL;
    w->heap = NULL;
    w->used = w->capacity = 0;
    w->levels = 0;
    w->count = w->due_count[0] = w->due_count[1] = 0;
    w->heap_length = 0;
}

static inline void kw_heap_push(kw_wheel *w, int64_t expiration, int32_t bucket) {
    kw_bucket *heap = w->heap;
    int32_t at = w->heap_length++;
    while (at > 0 && heap[(at - 1) / 2].expiration > expiration) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at].expiration = expiration;
    heap[at].bucket = bucket;
}

static inline int32_t kw_heap_pop(kw_wheel *w) {
    kw_bucket *heap = w->heap, last = heap[w->heap_length - 1];
    int32_t bucket = heap[0].bucket, length = --w->heap_length, at = 0, child;
    while ((child = 2 * at + 1) < length) {
        if (child + 1 < length && heap[child + 1].expiration < heap[child].expiration) child++;
        if (heap[child].expiration >= last.expiration) break;
        heap[at] = heap[child];
        at = child;
    }
    if (length > 0) heap[at] = last;
    return bucket;
}

/* Puts a node that is in no ring into the bucket of its expiration. 1; 0 = already due; -1 = no memory for a new level. */
static inline int kw_place(kw_wheel *w, int32_t i) {
    int64_t ahead = w->nodes[i].expiration - w->level[0].now, offset;
    kw_level *level;
    int32_t l = 0, bucket;
    if (ahead < w->level[0].tick) return 0;
    while (ahead >= w->level[l].interval) {
        if (++l == w->levels) {
            if (l == KW_MAX_LEVELS || w->level[l - 1].interval > KW_FOREVER / w->size) {
                l--;                     /* farther than the coarsest level: its last bucket, from where it is placed again */
                ahead = w->level[l].interval - w->level[l].tick;
                break;
            }
            if (kw_new_level(w, w->level[l - 1].interval, w->level[l - 1].now) < 0) return -1;
        }
        ahead = w->nodes[i].expiration - w->level[l].now;
    }
    level = &w->level[l];
    if (level->tick == 1) {
        offset = ahead;
    } else if (level->interval <= UINT32_MAX) {
        offset = (uint32_t)ahead / (uint32_t)level->tick;
    } else {
        offset = ahead / level->tick;
    }
    bucket = level->slot + (int32_t)offset;
    bucket = level->first + (bucket < w->size ? bucket : bucket - w->size);
    kw_link(w, bucket, i);
    if (w->nodes[bucket].expiration == KW_IDLE) {
        w->nodes[bucket].expiration = level->now + offset * level->tick;
        kw_heap_push(w, w->nodes[bucket].expiration, bucket);
    }
    return 1;
}

static inline void kw_make_due(kw_wheel *w, int32_t i) {
    int without = w->nodes[i].payload == NULL;
    if (w->nodes[i].expiration > w->now) {
        kw_link(w, w->current, i);
        return;
    }
    kw_link(w, w->due[without], i);
    w->nodes[i].state = KW_DUE;
    w->due_count[without]++;
}

/* A new node. Its index; KW_NONE without memory. With `refuse`, a node already due is not kept: KW_NONE - 1. */
static inline int32_t kw_add(kw_wheel *w, int64_t expiration, void *payload, int refuse) {
    int32_t i = kw_new_node(w);
    int placed;
    if (i == KW_NONE) return KW_NONE;
    w->nodes[i].expiration = expiration > KW_FOREVER ? KW_FOREVER : expiration < -KW_FOREVER ? -KW_FOREVER : expiration;
    w->nodes[i].payload = payload;
    w->nodes[i].state = KW_LINKED;
    placed = kw_place(w, i);
    if (placed <= 0) {
        if (placed < 0 || refuse) {
            kw_free_node(w, i);
            return placed < 0 ? KW_NONE : KW_NONE - 1;
        }
        kw_make_due(w, i);
    }
    w->count++;
    return i;
}

/* Takes a node out of its ring and frees it; its payload. */
static inline void *kw_take(kw_wheel *w, int32_t i) {
    void *payload = w->nodes[i].payload;
    kw_unlink(w, i);
    if (w->nodes[i].state == KW_DUE) w->due_count[payload == NULL]--;
    w->count--;
    kw_free_node(w, i);
    return payload;
}

static inline int64_t kw_handle(kw_wheel *w, int32_t i) { return ((int64_t)w->nodes[i].generation << 32) | (uint32_t)i; }

/* The node of a handle, or KW_NONE when it has been cancelled or taken, or was never given out. */
static inline int32_t kw_find(kw_wheel *w, int64_t handle) {
    int64_t i = handle & 0xffffffff;
    if (handle < 0 || i >= w->used || w->nodes[i].generation != (uint32_t)(handle >> 32)) return KW_NONE;
    return w->nodes[i].state == KW_LINKED || w->nodes[i].state == KW_DUE ? (int32_t)i : KW_NONE;
}

/* Cache lines that will be wanted: of the node of a handle; then, when that has come, of its neighbours; of the second node of a ring. */
static inline void kw_prefetch_node(const kw_wheel *w, int64_t handle) {
    if ((handle & 0xffffffff) < w->used) __builtin_prefetch(&w->nodes[handle & 0xffffffff], 1);
}

static inline void kw_prefetch_neighbours(const kw_wheel *w, int64_t handle) {
    if ((handle & 0xffffffff) < w->used) {
        const kw_node *n = &w->nodes[handle & 0xffffffff];
        if (n->state == KW_FREE) return;
        __builtin_prefetch(&w->nodes[n->next], 1);
        __builtin_prefetch(&w->nodes[n->prev], 1);
    }
}

static inline void kw_prefetch_next(const kw_wheel *w, int32_t ring) { __builtin_prefetch(&w->nodes[w->nodes[w->nodes[ring].next].next], 1); }

static inline void kw_advance(kw_wheel *w, int64_t now) {
    int32_t l;
    for (l = 0; l < w->levels && now - w->level[l].now >= w->level[l].tick; l++) {
        kw_level *level = &w->level[l];
        int64_t steps = (now - level->now) / level->tick;
        level->now += steps * level->tick;
        steps = level->slot + (steps < w->size ? steps : steps % w->size);
        level->slot = (int32_t)(steps < w->size ? steps : steps - w->size);
    }
}

static inline int kw_has_current(const kw_wheel *w) { return w->nodes[w->current].next != w->current; }

/* Moves the clock to `now` and every node whose time has come to the due ring. 0, or -1 when a level could not be made (nothing is lost). */
static int kw_expire(kw_wheel *w, int64_t now) {
    now = now > KW_FOREVER ? KW_FOREVER : now < -KW_FOREVER ? -KW_FOREVER : now;
    if (now > w->now) w->now = now;
    if (kw_has_current(w) && now - w->level[0].now >= w->level[0].tick - 1) {
        int32_t i;
        while ((i = w->nodes[w->current].next) != w->current) {
            kw_unlink(w, i);
            kw_make_due(w, i);
        }
    }
    while (w->heap_length && w->heap[0].expiration <= now) {
        int64_t expiration = w->heap[0].expiration;
        int32_t bucket = kw_heap_pop(w), i, back = w->nodes[bucket].prev;
        kw_advance(w, expiration);
        w->nodes[bucket].expiration = KW_IDLE;
        while ((i = w->nodes[bucket].next) != bucket) {
            int placed;
            if (back != bucket) {        /* the cache is filled from the other end too: two chains of misses at a time instead of one */
                back = back == i || back == w->nodes[i].next ? bucket : w->nodes[back].prev;
                __builtin_prefetch(&w->nodes[back]);
            }
            kw_unlink(w, i);
            placed = kw_place(w, i);
            if (placed == 0) {
                kw_make_due(w, i);
            } else if (placed < 0) {
                kw_link(w, bucket, i);   /* try again with the next call */
                w->nodes[bucket].expiration = expiration;
                kw_heap_push(w, expiration, bucket);
                return -1;
            }
        }
    }
    kw_advance(w, now);
    return 0;
}

/* When kw_expire will find something due; KW_IDLE if nothing waits. Exact, or early when the first bucket is a coarse and full one: then it
 * is the start of that bucket, where its nodes move down, so that looking costs a few nodes at most. */
static inline int64_t kw_next(kw_wheel *w) {
    const kw_node *nodes = w->nodes;
    int64_t next = INT64_MAX;
    int32_t r, i, left = KW_LOOK;
    for (r = 0; r < 2; r++) {
        if (w->due_count[r] && nodes[nodes[w->due[r]].next].expiration < next) next = nodes[nodes[w->due[r]].next].expiration;
    }
    if (next != INT64_MAX) return next;
    if (kw_has_current(w)) return w->level[0].now + w->level[0].tick - 1;
    while (w->heap_length && nodes[w->heap[0].bucket].next == w->heap[0].bucket) {       /* all its nodes were cancelled */
        i = kw_heap_pop(w);
        w->nodes[i].expiration = KW_IDLE;
    }
    if (w->heap_length == 0) return KW_IDLE;
    i = w->heap[0].bucket;
    if (w->level[0].tick == 1 && i - w->level[0].first < w->size) return w->heap[0].expiration;
    for (i = nodes[i].next; i != w->heap[0].bucket; i = nodes[i].next) {
        if (left-- == 0) return w->heap[0].expiration;
        if (nodes[i].expiration < next) next = nodes[i].expiration;
    }
    for (r = 1; r <= 2 && r < w->heap_length; r++) {
        if (w->heap[r].expiration < next) next = w->heap[r].expiration;
    }
    return next;
}

#endif
