/* Arrow columns as JSON texts: one pass over the rows, written into one buffer.
 *
 * A tree of kc_jw_node says where each column's values lie; the compiled Python side builds it of Arrow's C structs. `kc_jw_rows` writes
 * row after row. Where the buffer is full it takes its row back, and goes on there when the caller has made room. Offsets, indices and
 * lengths inside the columns come from others: each is checked before it is used. Nothing is allocated here, and no lock is needed.
 *
 * What is written is what producer/frame_json.py says; its general way writes the same bytes.
 *
 * Floats. The shortest decimal that reads back as the same double is looked for in two steps, both exact:
 *   1. m / 10^k with whole m < 10^15, k from 0 on. Both are doubles without error, so their quotient is what a reader makes of the text;
 *      doubles lie closer than such decimals, so at most one of them is right, and the smallest k gives the fewest digits.
 *   2. more digits one by one, by the C library's printf and strtod, which round to nearest. At powers of two the nearest decimal of so many
 *      digits may lie below the interval of the double while the next one above is within it: that is looked at, too.
 * For float32 likewise, with six and nine digits.
 */
#ifndef KAFKACORE_JSON_WRITE_H
#define KAFKACORE_JSON_WRITE_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "json_columns.h"

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
    const uint8_t *label;          /* "name": as it is written */
    int64_t label_size;
    struct kc_jw_node *children;   /* fields; a list's items; a dictionary's values */
    int64_t n_children;
} kc_jw_node;

typedef struct {
    uint8_t *start, *w, *end;
    int null_fields;
    const kc_jw_node *culprit;     /* what an error is about */
    int64_t full_needs;            /* KC_JW_FULL: how much room was missed */
} kc_jw_out;

static const char KC_JW_PAIRS[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

#define KC_JW_ROOM(out, n) do { if ((out)->end - (out)->w < (int64_t)(n)) { (out)->full_needs = (n); return KC_JW_FULL; } } while (0)

static inline uint8_t *kc_jw_digits(uint8_t *w, uint64_t v) {
    uint8_t text[20], *p = text + 20;
    while (v >= 100) {
        p -= 2;
        memcpy(p, KC_JW_PAIRS + 2 * (v % 100), 2);
        v /= 100;
    }
    if (v >= 10) { p -= 2; memcpy(p, KC_JW_PAIRS + 2 * v, 2); }
    else *--p = (uint8_t)('0' + v);
    memcpy(w, p, (size_t)(text + 20 - p));
    return w + (text + 20 - p);
}

static inline uint8_t *kc_jw_two(uint8_t *w, uint32_t v) {
    memcpy(w, KC_JW_PAIRS + 2 * v, 2);
    return w + 2;
}

static inline uint8_t *kc_jw_padded(uint8_t *w, uint32_t v, int width) {
    int i = width;
    for (; i >= 2; i -= 2) { kc_jw_two(w + i - 2, v % 100); v /= 100; }
    if (i) *w = (uint8_t)('0' + v);
    return w + width;
}

static inline uint8_t *kc_jw_signed(uint8_t *w, int64_t v) {
    if (v < 0) *w++ = '-';
    return kc_jw_digits(w, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* Decimal digits and the place of the point, as Python's repr writes them. */
static uint8_t *kc_jw_number(uint8_t *w, const uint8_t *digits, int n, int point) {
    while (n > 1 && digits[n - 1] == '0') n--;
    if (point > 16 || point < -3) {
        *w++ = digits[0];
        if (n > 1) { *w++ = '.'; memcpy(w, digits + 1, (size_t)(n - 1)); w += n - 1; }
        *w++ = 'e';
        int e = point - 1;
        *w++ = e < 0 ? '-' : '+';
        if (e < 0) e = -e;
        if (e >= 100) return kc_jw_padded(w, (uint32_t)e, 3);
        return kc_jw_two(w, (uint32_t)e);
    }
    if (point <= 0) {
        *w++ = '0'; *w++ = '.';
        for (int i = point; i < 0; i++) *w++ = '0';
        memcpy(w, digits, (size_t)n);
        return w + n;
    }
    for (int i = 0; i < point; i++) *w++ = i < n ? digits[i] : '0';
    *w++ = '.';
    if (n <= point) { *w++ = '0'; return w; }
    memcpy(w, digits + point, (size_t)(n - point));
    return w + (n - point);
}

/* The shortest digits, of `least` or more, that read back as the same double (or float), and the place of the point. */
static int kc_jw_shortest(double x, int is_float, int least, uint8_t *digits, int *point) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int wider_above = !(bits & 0xfffffffffffffu);          /* a power of two: doubles above it lie twice as far apart as below */
    for (int n = least;; n++) {
        char text[40];
        int got = 0;
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        const char *p = text;
        for (; *p && *p != 'e'; p++)                       /* what separates the digits goes by the locale */
            if (*p >= '0' && *p <= '9' && got < n) digits[got++] = (uint8_t)*p;
        *point = (int)strtol(p + (*p == 'e'), NULL, 10) + 1;
        if (n >= (is_float ? 9 : 17)) return got;
        for (int above = 0; above <= wider_above; above++) {
            if (above) {                                   /* the nearest decimal is below and too far; the next one may not be */
                int i = got - 1;
                while (i >= 0 && digits[i] == '9') digits[i--] = '0';
                if (i >= 0) digits[i]++;
                else { memmove(digits + 1, digits, (size_t)(got - 1)); digits[0] = '1'; ++*point; }
            }
            memcpy(text, digits, (size_t)got);
            snprintf(text + got, sizeof text - (size_t)got, "e%d", *point - got);
            if (is_float ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x) return got;
        }
    }
}

static const double KC_JW_TENS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

/* A finite double, in at most 32 bytes. */
static uint8_t *kc_jw_double(uint8_t *w, double v) {
    uint8_t digits[24];
    double x = fabs(v);
    int n, point, least = x < DBL_MIN ? 1 : 15;
    if (signbit(v)) *w++ = '-';
    if (x == 0.0) { memcpy(w, "0.0", 3); return w + 3; }
    if (x < 1e15 && x >= 1e-4) {
        for (int k = 0; k <= 18; k++) {
            double scaled = x * KC_JW_TENS[k];
            if (scaled >= 1e15) break;
            uint64_t m = (uint64_t)(scaled + 0.5);
            if (m && (double)m / KC_JW_TENS[k] == x) {
                n = (int)(kc_jw_digits(digits, m) - digits);
                return kc_jw_number(w, digits, n, n - k);
            }
        }
        least = 16;
    }
    n = kc_jw_shortest(x, 0, least, digits, &point);
    return kc_jw_number(w, digits, n, point);
}

/* A finite float: the shortest decimal that reads back as the same float. */
static uint8_t *kc_jw_float(uint8_t *w, float v) {
    uint8_t digits[24];
    double x = fabs((double)v);
    int n, point;
    if (signbit(v)) *w++ = '-';
    if (x == 0.0) { memcpy(w, "0.0", 3); return w + 3; }
    if (x < 1e6 && x >= 1e-4) {
        for (int k = 0; k <= 9; k++) {
            double scaled = x * KC_JW_TENS[k];
            if (scaled >= 1e6) break;
            uint64_t m = (uint64_t)(scaled + 0.5);
            if (m && (double)(float)((double)m / KC_JW_TENS[k]) == x) {
                n = (int)(kc_jw_digits(digits, m) - digits);
                return kc_jw_number(w, digits, n, n - k);
            }
        }
    }
    n = kc_jw_shortest(x, 1, x < FLT_MIN ? 1 : 6, digits, &point);
    return kc_jw_number(w, digits, n, point);
}

static int kc_jw_text(kc_jw_out *out, const uint8_t *p, int64_t n) {
    static const uint8_t SHORT[32] = {[8] = 'b', [9] = 't', [10] = 'n', [12] = 'f', [13] = 'r'};
    const uint8_t *end = p + n, *run = p;
    int wide = 0;
    KC_JW_ROOM(out, n + 2);
    uint8_t *w = out->w;
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
        if (out->end - w < (end - p) + 6) { out->full_needs = 2 * n + 8; return KC_JW_FULL; }
        uint8_t c = *p++;
        run = p;
        *w++ = '\\';
        if (c >= 0x20) *w++ = c;
        else if (SHORT[c]) *w++ = SHORT[c];
        else { memcpy(w, "u00", 3); w[3] = "0123456789abcdef"[c >> 4]; w[4] = "0123456789abcdef"[c & 15]; w += 5; }
    }
    *w++ = '"';
    if (wide && !kc_utf8_valid(end - n, end)) return KC_JW_BAD_TEXT;
    out->w = w;
    return KC_JW_OK;
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

static int64_t kc_jw_floor(int64_t v, int64_t by) { return v / by - (v % by < 0); }

static int kc_jw_timestamp(uint8_t **at, const kc_jw_node *node, int64_t v) {
    int64_t seconds = kc_jw_floor(v, node->per_second), fraction = v - seconds * node->per_second;
    int64_t days = kc_jw_floor(seconds, 86400), rest = seconds - days * 86400;
    uint8_t *w = *at;
    *w++ = '"';
    if (!kc_jw_day(&w, days)) return KC_JW_BAD_TIME;
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
    *at = w;
    return KC_JW_OK;
}

static void kc_jw_decimal(uint8_t **at, const uint8_t *p, int scale) {
    unsigned __int128 v;
    memcpy(&v, p, 16);
    uint8_t *w = *at, digits[40];
    int n = 0;
    if ((__int128)v < 0) { *w++ = '-'; v = 0 - v; }
    do { digits[n++] = (uint8_t)('0' + (int)(v % 10)); v /= 10; } while (v);
    while (n <= scale) digits[n++] = '0';
    while (n > scale) *w++ = digits[--n];
    if (scale) { *w++ = '.'; while (n) *w++ = digits[--n]; }
    *at = w;
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

static int kc_jw_value(kc_jw_out *out, const kc_jw_node *node, int64_t i);

static int kc_jw_or_null(kc_jw_out *out, const kc_jw_node *node, int64_t i) {
    if (!kc_jw_is_null(node, i)) return kc_jw_value(out, node, i);
    KC_JW_ROOM(out, 4);
    memcpy(out->w, "null", 4);
    out->w += 4;
    return KC_JW_OK;
}

/* Item i, which is not null. */
static int kc_jw_value(kc_jw_out *out, const kc_jw_node *node, int64_t i) {
    int64_t at = node->offset + i;
    int code = KC_JW_OK;
    KC_JW_ROOM(out, 64);                                   /* for whatever has a limit */
    out->culprit = node;
    switch (node->kind) {
    case KC_JW_BOOL:
        if ((node->data[at >> 3] >> (at & 7)) & 1) { memcpy(out->w, "true", 4); out->w += 4; }
        else { memcpy(out->w, "false", 5); out->w += 5; }
        return KC_JW_OK;
    case KC_JW_UINT64: out->w = kc_jw_digits(out->w, (uint64_t)kc_jw_whole(node->data, KC_JW_INT64, at)); return KC_JW_OK;
    case KC_JW_INT8: case KC_JW_INT16: case KC_JW_INT32: case KC_JW_INT64: case KC_JW_UINT8: case KC_JW_UINT16: case KC_JW_UINT32:
        out->w = kc_jw_signed(out->w, kc_jw_whole(node->data, node->kind, at));
        return KC_JW_OK;
    case KC_JW_FLOAT: { float v; memcpy(&v, node->data + 4 * at, 4); out->w = kc_jw_float(out->w, v); return KC_JW_OK; }
    case KC_JW_DOUBLE: { double v; memcpy(&v, node->data + 8 * at, 8); out->w = kc_jw_double(out->w, v); return KC_JW_OK; }
    case KC_JW_TEXT: case KC_JW_READY: {
        const uint8_t *p;
        int64_t n;
        if (kc_column_get(&node->text, i, &p, &n) != KC_COL_OK || n < 0) return KC_JW_BAD_LAYOUT;
        if (node->kind == KC_JW_TEXT) return kc_jw_text(out, p, n);
        KC_JW_ROOM(out, n);
        memcpy(out->w, p, (size_t)n);
        out->w += n;
        return KC_JW_OK;
    }
    case KC_JW_DATE32: case KC_JW_DATE64: {
        int64_t days = node->kind == KC_JW_DATE32 ? kc_jw_whole(node->data, KC_JW_INT32, at)
                                                  : kc_jw_floor(kc_jw_whole(node->data, KC_JW_INT64, at), 86400000);
        uint8_t *w = out->w;
        *w++ = '"';
        if (!kc_jw_day(&w, days)) return KC_JW_BAD_TIME;
        *w++ = '"';
        out->w = w;
        return KC_JW_OK;
    }
    case KC_JW_TIMESTAMP: return kc_jw_timestamp(&out->w, node, kc_jw_whole(node->data, KC_JW_INT64, at));
    case KC_JW_DECIMAL: kc_jw_decimal(&out->w, node->data + 16 * at, node->scale); return KC_JW_OK;
    case KC_JW_LIST: case KC_JW_LARGE_LIST: {
        int64_t from = kc_offset_at(node->data, at, node->kind == KC_JW_LARGE_LIST);
        int64_t to = kc_offset_at(node->data, at + 1, node->kind == KC_JW_LARGE_LIST);
        if (from < 0 || to < from || to > node->children->length) return KC_JW_BAD_LAYOUT;
        *out->w++ = '[';
        for (int64_t j = from; j < to; j++) {
            if (j > from) { KC_JW_ROOM(out, 1); *out->w++ = ','; }
            if ((code = kc_jw_or_null(out, node->children, j)) != KC_JW_OK) return code;
        }
        KC_JW_ROOM(out, 1);
        *out->w++ = ']';
        return KC_JW_OK;
    }
    case KC_JW_STRUCT: {
        int first = 1;
        *out->w++ = '{';
        for (const kc_jw_node *child = node->children; child < node->children + node->n_children; child++) {
            if (!out->null_fields && kc_jw_is_null(child, at)) continue;      /* a struct's offset is for its fields, too */
            KC_JW_ROOM(out, child->label_size + 1);
            if (!first) *out->w++ = ',';
            first = 0;
            memcpy(out->w, child->label, (size_t)child->label_size);
            out->w += child->label_size;
            if ((code = kc_jw_or_null(out, child, at)) != KC_JW_OK) return code;
        }
        KC_JW_ROOM(out, 1);
        *out->w++ = '}';
        return KC_JW_OK;
    }
    case KC_JW_DICTIONARY: {
        int64_t index = kc_jw_index(node, i);
        return index < 0 ? KC_JW_BAD_LAYOUT : kc_jw_value(out, node->children, index);
    }
    default: return KC_JW_BAD_LAYOUT;
    }
}

/* Rows from `row` on; returns the first one that is not written, with `code` saying why. A null row has no text. */
static int64_t kc_jw_rows(kc_jw_out *out, const kc_jw_node *node, int64_t *offsets, int64_t row, int *code) {
    for (; row < node->length; row++) {
        uint8_t *begin = out->w;
        *code = kc_jw_is_null(node, row) ? KC_JW_OK : kc_jw_value(out, node, row);
        if (*code != KC_JW_OK) { out->w = begin; return row; }
        offsets[row + 1] = out->w - out->start;
    }
    return row;
}
#endif
