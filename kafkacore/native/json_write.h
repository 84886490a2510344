/* Arrow columns as JSON texts: one pass over the rows, written into one buffer.
 *
 * A tree of kc_jw_node says where each column's values lie; the compiled Python side builds it of Arrow's C structs. `kc_jw_rows` writes
 * row after row. Where the buffer is full it takes its row back, and goes on there when the caller has made room. Offsets, indices and
 * lengths inside the columns come from others: each is checked before it is used. Nothing is allocated here, and no lock is needed.
 *
 * What is written is what producer/frame_json.py says; its general way writes the same bytes.
 *
 * A field's label begins with a comma; the first comma of an object becomes its brace. Copies are in steps of 16 bytes and may overshoot: every
 * writer asks for room for what it keeps and KC_JW_WIDE bytes more. Numbers are in json_numbers.h.
 */
#ifndef KAFKACORE_JSON_WRITE_H
#define KAFKACORE_JSON_WRITE_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "json_columns.h"
#include "json_numbers.h"

enum {
    KC_JW_NULL, KC_JW_BOOL, KC_JW_INT8, KC_JW_INT16, KC_JW_INT32, KC_JW_INT64, KC_JW_UINT8, KC_JW_UINT16, KC_JW_UINT32, KC_JW_UINT64,
    KC_JW_FLOAT, KC_JW_DOUBLE, KC_JW_TEXT, KC_JW_READY, KC_JW_DATE32, KC_JW_DATE64, KC_JW_TIMESTAMP, KC_JW_DECIMAL, KC_JW_LIST, KC_JW_LARGE_LIST,
    KC_JW_STRUCT, KC_JW_DICTIONARY
};
enum { KC_JW_OK, KC_JW_FULL, KC_JW_BAD_LAYOUT, KC_JW_BAD_TEXT, KC_JW_BAD_TIME };

typedef struct kc_jw_node {
    int kind, index_kind;          /* index_kind: of a dictionary's indices */
    int utc;                       /* timestamps with a zone */
    int scale;                     /* decimals */
    int64_t per_second;            /* timestamps */
    int64_t length, offset;        /* items; where the first one lies in the buffers */
    const uint8_t *validity;       /* or NULL */
    const uint8_t *data;           /* fixed widths, offsets of lists */
    kc_column text;                /* TEXT; READY: JSON already */
    const uint8_t *label;          /* ,"name": as it is written, in memory of whole 16 bytes */
    int64_t label_size;
    int places;                    /* of doubles: digits behind the point that are tried first, see json_numbers.h */
    struct kc_jw_node *children;   /* fields; a list's items; a dictionary's values */
    int64_t n_children;
} kc_jw_node;

/* Writers take the place w to write to and return the next one: in a register, where `out` would be a trip through memory per field. NULL
 * is an error, and `code` has it. */
typedef struct {
    uint8_t *start, *w, *end;
    int null_fields;
    int code;
    int64_t nulls;                 /* rows without a text */
    const kc_jw_node *culprit;     /* what an error is about */
    int64_t full_needs;            /* KC_JW_FULL: how much room was missed */
} kc_jw_out;

#define KC_JW_INLINE static inline __attribute__((always_inline))

KC_JW_INLINE uint8_t *kc_jw_fail(kc_jw_out *out, const kc_jw_node *node, int code) {
    out->code = code;
    out->culprit = node;
    return NULL;
}

#define KC_JW_ROOM(out, w, n) \
    do { if ((out)->end - (w) < (int64_t)(n)) { (out)->full_needs = (n); return kc_jw_fail(out, NULL, KC_JW_FULL); } } while (0)

/* ---- text ---- */

typedef uint8_t kc_jw_block __attribute__((vector_size(16)));
typedef int8_t kc_jw_signs __attribute__((vector_size(16)));
#define KC_JW_16(c) {c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c}
static const uint8_t KC_JW_FIRST[32] = KC_JW_16(255);      /* 16 bytes from 16 - n on: the first n of a block */

/* Marks what cannot be copied as it is, or not without a look at the rest: quotes, backslashes, control characters, and all but ASCII. */
static inline kc_jw_block kc_jw_special(kc_jw_block v) {
    const kc_jw_block quote = KC_JW_16('"'), slash = KC_JW_16('\\');
    const kc_jw_signs space = KC_JW_16(' ');
    return (kc_jw_block)(v == quote) | (kc_jw_block)(v == slash) | (kc_jw_block)((kc_jw_signs)v < space);
}

static inline int kc_jw_any(kc_jw_block v) {
    uint64_t halves[2];
    memcpy(halves, &v, 16);
    return (halves[0] | halves[1]) != 0;
}

/* Text that needs escapes, or is not ASCII. */
static __attribute__((noinline)) uint8_t *kc_jw_escaped(kc_jw_out *out, uint8_t *w, const kc_jw_node *node, const uint8_t *p, int64_t n) {
    static const uint8_t SHORT[32] = {[8] = 'b', [9] = 't', [10] = 'n', [12] = 'f', [13] = 'r'};
    const uint8_t *end = p + n, *run = p;
    int wide = 0;
    KC_JW_ROOM(out, w, n + KC_JW_WIDE);
    *w++ = '"';
    for (;;) {
        while (end - p >= 8) {
            uint64_t v = kc_json_load(p), quote = v ^ 0x2222222222222222u, slash = v ^ 0x5c5c5c5c5c5c5c5cu;
            uint64_t hit = ((quote - 0x0101010101010101u) & ~quote) | ((slash - 0x0101010101010101u) & ~slash) |
                           ((v - 0x2020202020202020u) & ~v);
            wide |= (v & 0x8080808080808080u) != 0;
            if (hit & 0x8080808080808080u) break;
            p += 8;
        }
        while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') wide |= *p++ >> 7;
        if (p != run) memcpy(w, run, (size_t)(p - run));
        w += p - run;
        if (p == end) break;
        KC_JW_ROOM(out, w, (end - p) + 6);
        uint8_t c = *p++;
        run = p;
        *w++ = '\\';
        if (c >= 0x20) *w++ = c;
        else if (SHORT[c]) *w++ = SHORT[c];
        else { memcpy(w, "u00", 3); w[3] = "0123456789abcdef"[c >> 4]; w[4] = "0123456789abcdef"[c & 15]; w += 5; }
    }
    *w++ = '"';
    return wide && !kc_utf8_valid(end - n, end) ? kc_jw_fail(out, node, KC_JW_BAD_TEXT) : w;
}

/* How far the memory behind item p of a column may be read. */
KC_JW_INLINE const uint8_t *kc_jw_end_of(const kc_column *c, const uint8_t *p, int64_t n) {
    if (c->kind == KC_COL_OFFSETS32 || c->kind == KC_COL_OFFSETS64) return c->data + c->limit;
    if (c->kind == KC_COL_VIEWS && n <= 12) return c->data + 16 * c->count;      /* within its view */
    return p + n;
}

/* Item i of a column of text as a JSON string. */
KC_JW_INLINE uint8_t *kc_jw_text(kc_jw_out *out, uint8_t *w, const kc_jw_node *node, int64_t i) {
    kc_jw_block v, found;
    const uint8_t *p;
    int64_t n;
    if (kc_column_get(&node->text, i, &p, &n) != KC_COL_OK || n < 0) return kc_jw_fail(out, node, KC_JW_BAD_LAYOUT);
    KC_JW_ROOM(out, w, n + KC_JW_WIDE);
    *w++ = '"';
    if (n < 16) {
        uint8_t few[16] = {0};
        if (kc_jw_end_of(&node->text, p, n) - p >= 16) memcpy(&v, p, 16);
        else {
            for (int64_t j = 0; j < n; j++) few[j] = p[j];
            memcpy(&v, few, 16);
        }
        memcpy(&found, KC_JW_FIRST + 16 - n, 16);
        found &= kc_jw_special(v);
        memcpy(w, &v, 16);
    } else {
        memcpy(&v, p + n - 16, 16);
        found = kc_jw_special(v);
        memcpy(w + n - 16, &v, 16);
        for (int64_t j = 0; j < n - 16; j += 16) {
            memcpy(&v, p + j, 16);
            found |= kc_jw_special(v);
            memcpy(w + j, &v, 16);
        }
    }
    if (__builtin_expect(kc_jw_any(found), 0)) return kc_jw_escaped(out, w - 1, node, p, n);
    w[n] = '"';
    return w + n + 1;
}

/* Days since 1970 as YYYY-MM-DD; 0 outside the years 1 to 9999. The calendar by eras of 400 years that begin in March. */
static int kc_jw_day(uint8_t **at, int64_t days) {
    if (days < -719162 || days > 2932896) return 0;
    uint32_t z = (uint32_t)(days + 719468), era = z / 146097, doe = z - era * 146097;
    uint32_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    uint32_t mp = (5 * doy + 2) / 153;
    uint32_t month = mp < 10 ? mp + 3 : mp - 9, year = yoe + era * 400 + (month <= 2), day = doy - (153 * mp + 2) / 5 + 1;
    uint8_t *w = kc_jw_padded(*at, (uint32_t)year, 4);
    *w++ = '-';
    w = kc_jw_two(w, (uint32_t)month);
    *w++ = '-';
    *at = kc_jw_two(w, (uint32_t)day);
    return 1;
}

/* Both round down: v = kc_jw_floor(v, by) * by + kc_jw_rest(v, by). The product itself may lie below INT64_MIN. */
static int64_t kc_jw_floor(int64_t v, int64_t by) { return v / by - (v % by < 0); }
static int64_t kc_jw_rest(int64_t v, int64_t by) { return v % by < 0 ? v % by + by : v % by; }

/* NULL outside the years 1 to 9999. */
static uint8_t *kc_jw_timestamp(uint8_t *w, const kc_jw_node *node, int64_t v) {
    int64_t seconds = kc_jw_floor(v, node->per_second), fraction = kc_jw_rest(v, node->per_second);
    int64_t days = kc_jw_floor(seconds, 86400), rest = kc_jw_rest(seconds, 86400);
    *w++ = '"';
    if (!kc_jw_day(&w, days)) return NULL;
    *w++ = 'T';
    uint32_t second = (uint32_t)rest;
    w = kc_jw_two(w, second / 3600);
    *w++ = ':';
    w = kc_jw_two(w, second / 60 % 60);
    *w++ = ':';
    w = kc_jw_two(w, second % 60);
    if (fraction) {
        int width = node->per_second == 1000 ? 3 : node->per_second == 1000000 ? 6 : 9;
        uint32_t left = (uint32_t)fraction;
        while (left % 1000 == 0) { left /= 1000; width -= 3; }
        *w++ = '.';
        w = kc_jw_padded(w, left, width);
    }
    if (node->utc) *w++ = 'Z';
    *w++ = '"';
    return w;
}

static uint8_t *kc_jw_decimal(uint8_t *w, const uint8_t *p, int scale) {
    unsigned __int128 v;
    memcpy(&v, p, 16);
    uint8_t digits[40];
    int n = 0;
    if ((__int128)v < 0) { *w++ = '-'; v = 0 - v; }
    do { digits[n++] = (uint8_t)('0' + (int)(v % 10)); v /= 10; } while (v);
    while (n <= scale) digits[n++] = '0';
    while (n > scale) *w++ = digits[--n];
    if (scale) { *w++ = '.'; while (n) *w++ = digits[--n]; }
    return w;
}

static inline int64_t kc_jw_whole(const uint8_t *data, int kind, int64_t i) {
    switch (kind) {
    case KC_JW_INT8: return ((const int8_t *)data)[i];
    case KC_JW_UINT8: return data[i];
    case KC_JW_INT16: { int16_t v; memcpy(&v, data + 2 * i, 2); return v; }
    case KC_JW_UINT16: { uint16_t v; memcpy(&v, data + 2 * i, 2); return v; }
    case KC_JW_INT32: { int32_t v; memcpy(&v, data + 4 * i, 4); return v; }
    case KC_JW_UINT32: { uint32_t v; memcpy(&v, data + 4 * i, 4); return v; }
    default: { int64_t v; memcpy(&v, data + 8 * i, 8); return v; }      /* uint64 as the same bits */
    }
}

/* Item i of a dictionary column, in its values; -1 if it is not there. */
static inline int64_t kc_jw_index(const kc_jw_node *node, int64_t i) {
    int64_t found = kc_jw_whole(node->data, node->index_kind, node->offset + i);
    return found < 0 || found >= node->children->length ? -1 : found;
}

static int kc_jw_is_null(const kc_jw_node *node, int64_t i) {
    int64_t at = node->offset + i;
    if (node->kind == KC_JW_NULL) return 1;
    if (node->validity && !((node->validity[at >> 3] >> (at & 7)) & 1)) return 1;
    if (node->kind == KC_JW_DOUBLE) { double v; memcpy(&v, node->data + 8 * at, 8); return !isfinite(v); }
    if (node->kind == KC_JW_FLOAT) { float v; memcpy(&v, node->data + 4 * at, 4); return !isfinite(v); }
    if (node->kind == KC_JW_DICTIONARY) {
        int64_t index = kc_jw_index(node, i);
        return index >= 0 && kc_jw_is_null(node->children, index);
    }
    return 0;
}

static uint8_t *kc_jw_value(kc_jw_out *out, uint8_t *w, kc_jw_node *node, int64_t i);

KC_JW_INLINE uint8_t *kc_jw_null(uint8_t *w) {
    memcpy(w, "null", 4);
    return w + 4;
}

/* Item i, or null: the commonest kinds in the caller's loop, where a call for each value would cost as much as the value. There is room for
 * KC_JW_WIDE bytes. */
KC_JW_INLINE uint8_t *kc_jw_field(kc_jw_out *out, uint8_t *w, kc_jw_node *node, int64_t i) {
    int64_t at = node->offset + i;
    if (node->kind != KC_JW_INT64 && node->kind != KC_JW_DOUBLE && node->kind != KC_JW_TEXT) return kc_jw_value(out, w, node, i);
    if (node->validity && !((node->validity[at >> 3] >> (at & 7)) & 1)) return kc_jw_null(w);
    if (node->kind == KC_JW_TEXT) return kc_jw_text(out, w, node, i);
    if (node->kind == KC_JW_INT64) return kc_jw_signed(w, kc_jw_whole(node->data, KC_JW_INT64, at));
    double v;
    memcpy(&v, node->data + 8 * at, 8);
    return isfinite(v) ? kc_jw_double(w, v, &node->places) : kc_jw_null(w);
}

KC_JW_INLINE uint8_t *kc_jw_object(kc_jw_out *out, uint8_t *w, const kc_jw_node *node, int64_t i) {
    int64_t at = node->offset + i, begin = w - out->start;  /* a struct's offset is for its fields, too */
    for (kc_jw_node *child = node->children, *end = child + node->n_children; child < end; child++) {
        if (!out->null_fields && kc_jw_is_null(child, at)) continue;
        KC_JW_ROOM(out, w, child->label_size + KC_JW_WIDE);
        for (int64_t j = 0; j < child->label_size; j += 16) memcpy(w + j, child->label + j, 16);
        if (!(w = kc_jw_field(out, w + child->label_size, child, at))) return NULL;
    }
    KC_JW_ROOM(out, w, 2);
    w += w == out->start + begin;
    out->start[begin] = '{';
    *w++ = '}';
    return w;
}

/* Item i, or null. */
static uint8_t *kc_jw_value(kc_jw_out *out, uint8_t *w, kc_jw_node *node, int64_t i) {
    int64_t at = node->offset + i;
    KC_JW_ROOM(out, w, KC_JW_WIDE);                        /* for whatever has a limit */
    if (node->validity && !((node->validity[at >> 3] >> (at & 7)) & 1)) return kc_jw_null(w);
    switch (node->kind) {
    case KC_JW_NULL: return kc_jw_null(w);
    case KC_JW_BOOL: {
        int yes = (node->data[at >> 3] >> (at & 7)) & 1;
        memcpy(w, yes ? "true" : "false", 5);
        return w + 5 - yes;
    }
    case KC_JW_UINT64: return kc_jw_digits(w, (uint64_t)kc_jw_whole(node->data, KC_JW_INT64, at));
    case KC_JW_INT8: case KC_JW_INT16: case KC_JW_INT32: case KC_JW_UINT8: case KC_JW_UINT16: case KC_JW_UINT32:
        return kc_jw_signed(w, kc_jw_whole(node->data, node->kind, at));
    case KC_JW_FLOAT: {
        float v;
        memcpy(&v, node->data + 4 * at, 4);
        return isfinite(v) ? kc_jw_float(w, v) : kc_jw_null(w);
    }
    case KC_JW_INT64: case KC_JW_DOUBLE: case KC_JW_TEXT: return kc_jw_field(out, w, node, i);
    case KC_JW_READY: {
        const uint8_t *p;
        int64_t n;
        if (kc_column_get(&node->text, i, &p, &n) != KC_COL_OK || n < 0) return kc_jw_fail(out, node, KC_JW_BAD_LAYOUT);
        KC_JW_ROOM(out, w, n);
        memcpy(w, p, (size_t)n);
        return w + n;
    }
    case KC_JW_DATE32: case KC_JW_DATE64: {
        int64_t days = node->kind == KC_JW_DATE32 ? kc_jw_whole(node->data, KC_JW_INT32, at)
                                                  : kc_jw_floor(kc_jw_whole(node->data, KC_JW_INT64, at), 86400000);
        *w++ = '"';
        if (!kc_jw_day(&w, days)) return kc_jw_fail(out, node, KC_JW_BAD_TIME);
        *w++ = '"';
        return w;
    }
    case KC_JW_TIMESTAMP:
        w = kc_jw_timestamp(w, node, kc_jw_whole(node->data, KC_JW_INT64, at));
        return w ? w : kc_jw_fail(out, node, KC_JW_BAD_TIME);
    case KC_JW_DECIMAL: return kc_jw_decimal(w, node->data + 16 * at, node->scale);
    case KC_JW_LIST: case KC_JW_LARGE_LIST: {
        int64_t from = kc_offset_at(node->data, at, node->kind == KC_JW_LARGE_LIST);
        int64_t to = kc_offset_at(node->data, at + 1, node->kind == KC_JW_LARGE_LIST);
        if (from < 0 || to < from || to > node->children->length) return kc_jw_fail(out, node, KC_JW_BAD_LAYOUT);
        *w++ = '[';
        for (int64_t j = from; j < to; j++) {
            KC_JW_ROOM(out, w, KC_JW_WIDE + 1);
            if (j > from) *w++ = ',';
            if (!(w = kc_jw_field(out, w, node->children, j))) return NULL;
        }
        KC_JW_ROOM(out, w, 1);
        *w++ = ']';
        return w;
    }
    case KC_JW_STRUCT: return kc_jw_object(out, w, node, i);
    case KC_JW_DICTIONARY: {
        int64_t index = kc_jw_index(node, i);
        return index < 0 ? kc_jw_fail(out, node, KC_JW_BAD_LAYOUT) : kc_jw_value(out, w, node->children, index);
    }
    default: return kc_jw_fail(out, node, KC_JW_BAD_LAYOUT);
    }
}

/* Rows from `row` on; returns the first one that is not written, and out->code says why. A null row has no text. */
static int64_t kc_jw_rows(kc_jw_out *out, kc_jw_node *node, int64_t *offsets, int64_t row) {
    for (; row < node->length; row++) {
        if (!kc_jw_is_null(node, row)) {
            uint8_t *w = node->kind == KC_JW_STRUCT ? kc_jw_object(out, out->w, node, row) : kc_jw_value(out, out->w, node, row);
            if (!w) return row;
            out->w = w;
        } else out->nulls++;
        offsets[row + 1] = out->w - out->start;
    }
    return row;
}
#endif
