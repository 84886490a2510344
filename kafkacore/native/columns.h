/* A column of byte strings, whatever lays it out: the one reader behind append_many and send_many.
 *
 * kind decides how item i is found; null items have length -1. Layouts:
 *   LIST      items are Python objects; only the compiled Python side can read them (get returns KC_COL_OBJECT)
 *   OFFSETS32 / OFFSETS64   item i is data[offsets[i] .. offsets[i+1]) (Arrow binary and string, large_* with 64 bits)
 *   FIXED     item i is itemsize bytes at data + i * stride (Arrow fixed size binary, numpy V)
 *   PADDED    as FIXED, but trailing zero bytes are padding (numpy S)
 *   VIEWS     item i is a 16-byte Arrow view: length, then 12 inline bytes or prefix, buffer index, offset
 *   NULLS     every item is null
 * Offsets come from outside: every item is checked against [0, limit] before it is read.
 */
#ifndef KAFKACORE_COLUMNS_H
#define KAFKACORE_COLUMNS_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KC_COL_NULLS, KC_COL_LIST, KC_COL_OFFSETS32, KC_COL_OFFSETS64, KC_COL_FIXED, KC_COL_PADDED, KC_COL_VIEWS };
enum { KC_COL_OK = 0, KC_COL_BAD = -1, KC_COL_OBJECT = 1 };

typedef struct {
    int kind;
    int64_t count;
    const uint8_t *data;           /* OFFSETS, FIXED, PADDED: bytes; VIEWS: the views */
    int64_t limit;                 /* OFFSETS: readable bytes of data */
    const void *offsets;           /* OFFSETS: count + 1 of them, first one already skipped to the slice's start */
    const uint8_t *validity;       /* Arrow bitmap, or NULL when nothing is null */
    int64_t first_bit;             /* bit of item 0 in validity */
    int64_t stride, itemsize;
    const uint8_t *const *blocks;  /* VIEWS: data buffers */
    const int64_t *block_sizes;
    int64_t n_blocks;
} kc_column;

/* The C data interface of Arrow, from its specification. */
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* The caller may change the memory while it is read, also beside the GIL (numpy lets go of it). So what was read is checked and used, and is not
 * read a second time: by us or by the compiler, which may otherwise load a variable again that it has no register for. */
#if defined(__GNUC__)
#define KC_READ_ONCE(v) __asm__("" : "+r"(v))
#else
#define KC_READ_ONCE(v) ((void)(v))
#endif

/* Offsets may be unaligned: a pair's second half is any buffer. */
static inline int64_t kc_offset_at(const void *offsets, int64_t i, int wide) {
    int32_t narrow;
    int64_t whole;
    if (wide) memcpy(&whole, (const uint8_t *)offsets + 8 * i, 8);
    else { memcpy(&narrow, (const uint8_t *)offsets + 4 * i, 4); whole = narrow; }
    KC_READ_ONCE(whole);
    return whole;
}

static inline int kc_column_get(const kc_column *c, int64_t i, const uint8_t **p, int64_t *n) {
    int64_t from, to;
    if (c->validity) {
        int64_t bit = c->first_bit + i;
        if (!((c->validity[bit >> 3] >> (bit & 7)) & 1)) { *p = NULL; *n = -1; return KC_COL_OK; }
    }
    switch (c->kind) {
    case KC_COL_OFFSETS32:
        from = kc_offset_at(c->offsets, i, 0);
        to = kc_offset_at(c->offsets, i + 1, 0);
        break;
    case KC_COL_OFFSETS64:
        from = kc_offset_at(c->offsets, i, 1);
        to = kc_offset_at(c->offsets, i + 1, 1);
        break;
    case KC_COL_FIXED:
        *p = c->data + i * c->stride;
        *n = c->itemsize;
        return KC_COL_OK;
    case KC_COL_PADDED:
        *p = c->data + i * c->stride;
        for (to = c->itemsize; to > 0 && (*p)[to - 1] == 0; to--) {}
        *n = to;
        return KC_COL_OK;
    case KC_COL_VIEWS: {
        const uint8_t *view = c->data + 16 * i;
        int32_t part[4];                                   /* length, prefix, block, offset */
        memcpy(part, view, 16);
        KC_READ_ONCE(part[0]);
        KC_READ_ONCE(part[2]);
        KC_READ_ONCE(part[3]);
        if (part[0] < 0) return KC_COL_BAD;
        *n = part[0];
        if (part[0] <= 12) { *p = view + 4; return KC_COL_OK; }
        if (part[2] < 0 || part[2] >= c->n_blocks || part[3] < 0) return KC_COL_BAD;
        if ((int64_t)part[3] + part[0] > c->block_sizes[part[2]]) return KC_COL_BAD;
        *p = c->blocks[part[2]] + part[3];
        return KC_COL_OK;
    }
    case KC_COL_NULLS:
        *p = NULL;
        *n = -1;
        return KC_COL_OK;
    default:
        return KC_COL_OBJECT;
    }
    if (from < 0 || to < from || to > c->limit || to - from > INT32_MAX) return KC_COL_BAD;
    *p = c->data + from;
    *n = to - from;
    return KC_COL_OK;
}
#endif
