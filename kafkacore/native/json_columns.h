/* JSON objects as Arrow columns, for flat schemas: one pass over each value, written straight into the columns' buffers.
 *
 * A value is taken only if there can be no two opinions about it: one object of strict JSON (RFC 8259) in valid UTF-8, no column's name
 * twice, no escapes in names, and under every column's name null or exactly what the column holds. All else is left, as a row of nulls
 * whose bit in `doubtful` is set, to readers that know the odd cases; so nothing here decides what is wrong, nor how a number that does not
 * fit or has too many digits is to be read.
 *
 * Every read is checked against the value's end. Nesting takes no stack. Nothing is allocated here: where a string does not fit, the scan
 * stops before its row, says what it needs, and goes on there when the caller has made room.
 */
#ifndef KAFKACORE_JSON_COLUMNS_H
#define KAFKACORE_JSON_COLUMNS_H
#include <float.h>
#include <stdint.h>
#include <string.h>

#include "columns.h"
#include "utf8.h"

enum { KC_JSON_FINE, KC_JSON_DOUBTFUL, KC_JSON_FULL };
enum { KC_JSON_DEPTH = 64, KC_JSON_NUMBER_BYTES = 400 };   /* Python reads no integer of more than 640 digits, if it is so told */

/* A column: kinds are the letters of Arrow's C interface. Fixed widths and validity start as zeros, offsets with one zero. */
typedef struct {
    const uint8_t *name;
    int64_t name_size;
    int kind;                  /* c s i l: int8 to int64; f g: float, double; b: boolean; u: string */
    uint8_t *validity, *data;
    int32_t *offsets;          /* u: count + 1 */
    int64_t used, capacity;    /* u: bytes of data */
    int64_t valid;             /* values that are not null */
    int64_t seen;              /* 1 + the last row that named it */
} kc_json_field;

typedef struct {
    kc_json_field *fields;
    int64_t n_fields;
    uint8_t *doubtful;         /* a bit per row, zeros to start with */
    int64_t n_doubtful;
    int64_t full, needed;      /* which field's data is full, and how many bytes it must hold at least */
} kc_json;

typedef struct {
    uint64_t mantissa;         /* right if there are at most 19 digits */
    int64_t digits, exponent;  /* significant digits; of ten, behind the last digit */
    int negative, whole;       /* whole: neither a point nor an exponent */
} kc_json_number;

static inline uint64_t kc_json_load(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline const uint8_t *kc_json_blank(const uint8_t *p, const uint8_t *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* The four digits of an escape as a number, or -1. */
static inline int32_t kc_json_hex(const uint8_t *p, const uint8_t *end) {
    if (end - p < 4) return -1;
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = p[i], letter = c | 0x20;
        if (c >= '0' && c <= '9') v = v * 16 + (c - '0');
        else if (letter >= 'a' && letter <= 'f') v = v * 16 + (letter - 'a' + 10);
        else return -1;
    }
    return v;
}

/* From behind a string's first quote to its last one, or NULL. Says whether there are escapes between. */
static inline const uint8_t *kc_json_string(const uint8_t *p, const uint8_t *end, int *escapes) {
    *escapes = 0;
    for (;;) {
        while (end - p >= 8) {                             /* eight bytes of which none is a quote, a backslash or a control character */
            uint64_t v = kc_json_load(p), quote = v ^ 0x2222222222222222u, slash = v ^ 0x5c5c5c5c5c5c5c5cu;
            uint64_t hit = ((quote - 0x0101010101010101u) & ~quote) | ((slash - 0x0101010101010101u) & ~slash) |
                           ((v - 0x2020202020202020u) & ~v);
            hit &= 0x8080808080808080u;
            if (hit) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                p += __builtin_ctzll(hit) >> 3;            /* the lowest is never a false one */
#endif
                break;
            }
            p += 8;
        }
        while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') p++;
        if (p == end || *p < 0x20) return NULL;
        if (*p == '"') return p;
        *escapes = 1;
        if (end - p < 2) return NULL;
        p += 2;
        switch (p[-1]) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': break;
        case 'u': {
            int32_t unit = kc_json_hex(p, end);
            if (unit < 0 || (unit >= 0xdc00 && unit < 0xe000)) return NULL;
            p += 4;
            if (unit >= 0xd800 && unit < 0xdc00) {         /* only as the first half of a pair */
                if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
                unit = kc_json_hex(p + 2, end);
                if (unit < 0xdc00 || unit >= 0xe000) return NULL;
                p += 6;
            }
            break;
        }
        default: return NULL;
        }
    }
}

/* What a string of escapes stands for; kc_json_string has found it right, and what it stands for is never longer. Returns the end of it. */
static uint8_t *kc_json_unescape(uint8_t *w, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        if (*p != '\\') { *w++ = *p++; continue; }
        p += 2;
        switch (p[-1]) {
        case 'b': *w++ = '\b'; break;
        case 'f': *w++ = '\f'; break;
        case 'n': *w++ = '\n'; break;
        case 'r': *w++ = '\r'; break;
        case 't': *w++ = '\t'; break;
        case 'u': {
            uint32_t point = (uint32_t)kc_json_hex(p, end);
            p += 4;
            if (point >= 0xd800 && point < 0xdc00) {
                point = 0x10000 + ((point - 0xd800) << 10) + ((uint32_t)kc_json_hex(p + 2, end) - 0xdc00);
                p += 6;
            }
            if (point < 0x80) *w++ = (uint8_t)point;
            else {
                if (point < 0x800) *w++ = (uint8_t)(0xc0 | point >> 6);
                else {
                    if (point < 0x10000) *w++ = (uint8_t)(0xe0 | point >> 12);
                    else {
                        *w++ = (uint8_t)(0xf0 | point >> 18);
                        *w++ = (uint8_t)(0x80 | (point >> 12 & 0x3f));
                    }
                    *w++ = (uint8_t)(0x80 | (point >> 6 & 0x3f));
                }
                *w++ = (uint8_t)(0x80 | (point & 0x3f));
            }
            break;
        }
        default: *w++ = p[-1];
        }
    }
    return w;
}

static inline const uint8_t *kc_json_literal(const uint8_t *p, const uint8_t *end, const char *text, int64_t n) {
    return end - p >= n && memcmp(p, text, (size_t)n) == 0 ? p + n : NULL;
}

/* One number; its end, or NULL. */
static inline const uint8_t *kc_json_scan_number(const uint8_t *p, const uint8_t *end, kc_json_number *n) {
    const uint8_t *begin = p, *part;
    uint64_t m = 0;
    int64_t exponent = 0;
    n->negative = p < end && *p == '-';
    n->whole = 1;
    p += n->negative;
    part = p;
    if (p < end && *p == '0') { p++; part++; }
    else {
        while (p < end && (uint8_t)(*p - '0') < 10) m = m * 10 + (uint64_t)(*p++ - '0');
        if (p == part) return NULL;
    }
    n->digits = p - part;
    if (p < end && *p == '.') {
        const uint8_t *point = ++p;
        n->whole = 0;
        if (!n->digits) while (p < end && *p == '0') p++;  /* zeros in front are not significant */
        part = p;
        while (p < end && (uint8_t)(*p - '0') < 10) m = m * 10 + (uint64_t)(*p++ - '0');
        if (p == point) return NULL;
        n->digits += p - part;
        exponent = point - p;
    }
    if (p < end && (*p | 0x20) == 'e') {
        int64_t e = 0;
        int minus;
        p++;
        minus = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        n->whole = 0;
        part = p;
        while (p < end && (uint8_t)(*p - '0') < 10) {
            if (e < 100000) e = e * 10 + (*p - '0');
            p++;
        }
        if (p == part) return NULL;
        exponent += minus ? -e : e;
    }
    if (p - begin > KC_JSON_NUMBER_BYTES) return NULL;
    n->mantissa = m;
    n->exponent = exponent;
    return p;
}

/* The double nearest to a number, halves to even. 0 if that is not known here: a negative zero, more digits or a larger exponent. */
static int kc_json_double(const kc_json_number *n, double *out) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t m = n->mantissa;
    int64_t ten = n->exponent;
    double v;
    if (n->digits > 19 || ten < -27 || ten > 27 || (!m && n->negative)) return 0;
    if (!m) v = 0;
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD == 0
    else if (m <= (uint64_t)1 << 53 && ten >= -22 && ten <= 22)  /* both exact, so there is one rounding */
        v = ten < 0 ? (double)m / tens[-ten] : (double)m * tens[ten];
#endif
    else {
#ifdef __SIZEOF_INT128__
        unsigned __int128 wide;                            /* the number is wide * 2^two and a remainder of less than 2^two */
        uint64_t five = 1, low, bits;
        int64_t two = ten;
        int rest = 0, shift;
        for (int64_t i = ten < 0 ? -ten : ten; i; i--) five *= 5;  /* below 2^63 */
        if (ten >= 0) wide = (unsigned __int128)m * five;
        else {
            int up = __builtin_clzll(m);
            wide = (unsigned __int128)(m << up) << 64;     /* so that the quotient has more than 64 bits */
            two -= 64 + up;
            unsigned __int128 quotient = wide / five;
            rest = wide != quotient * five;
            wide = quotient;
        }
        shift = 128 - 53 - ((uint64_t)(wide >> 64) ? __builtin_clzll((uint64_t)(wide >> 64)) : 64 + __builtin_clzll((uint64_t)wide));
        if (shift <= 0) bits = (uint64_t)wide;
        else {
            unsigned __int128 half = (unsigned __int128)1 << (shift - 1), left = wide & ((half << 1) - 1);
            bits = (uint64_t)(wide >> shift);
            bits += left > half || (left == half && (rest || (bits & 1)));
            two += shift;
        }
        low = (uint64_t)(1023 + two) << 52;                /* 2^two; far from the ends of the range */
        memcpy(&v, &low, 8);
        v *= (double)bits;
#else
        return 0;
#endif
    }
    *out = n->negative ? -v : v;
    return 1;
}

/* The end of any value that begins at p, or NULL. */
static const uint8_t *kc_json_skip(const uint8_t *p, const uint8_t *end) {
    uint64_t objects = 0;                                  /* a bit for each level: is it an object */
    int depth = 0, escapes;
    kc_json_number number;
    for (;;) {
        int opened = 0;
        if (p == end) return NULL;
        switch (*p) {
        case '{': case '[':
            if (depth++ == KC_JSON_DEPTH) return NULL;
            objects = objects << 1 | (*p == '{');
            p = kc_json_blank(p + 1, end);
            opened = 1;
            break;
        case '"':
            if (!(p = kc_json_string(p + 1, end, &escapes))) return NULL;
            p++;
            break;
        case 't': p = kc_json_literal(p, end, "true", 4); break;
        case 'f': p = kc_json_literal(p, end, "false", 5); break;
        case 'n': p = kc_json_literal(p, end, "null", 4); break;
        default: p = kc_json_scan_number(p, end, &number);
        }
        if (!p) return NULL;
        for (;; opened = 0) {                              /* up to the next value */
            if (!depth) return p;
            if (!opened) p = kc_json_blank(p, end);
            if (p == end) return NULL;
            if (*p == (objects & 1 ? '}' : ']')) { p++; depth--; objects >>= 1; continue; }
            if (!opened) {
                if (*p != ',') return NULL;
                p = kc_json_blank(p + 1, end);
            }
            break;
        }
        if (!(objects & 1)) continue;
        if (p == end || *p != '"' || !(p = kc_json_string(p + 1, end, &escapes))) return NULL;
        p = kc_json_blank(p + 1, end);
        if (p == end || *p != ':') return NULL;
        p = kc_json_blank(p + 1, end);
    }
}

/* The value of a column that begins at p and is not null; its end, or NULL, with *status saying why if it is not doubtful. */
static inline const uint8_t *kc_json_take(kc_json_field *f, int64_t row, const uint8_t *p, const uint8_t *end, int64_t *needed, int *status) {
    kc_json_number number;
    double real;
    switch (f->kind) {
    case 'u': {
        const uint8_t *from = p + 1;
        int escapes;
        if (*p != '"' || !(p = kc_json_string(from, end, &escapes))) return NULL;
        *needed = f->used + (p - from);
        if (*needed > INT32_MAX) return NULL;
        if (*needed > f->capacity) { *status = KC_JSON_FULL; return NULL; }
        if (escapes) f->used = kc_json_unescape(f->data + f->used, from, p) - f->data;
        else {
            memcpy(f->data + f->used, from, (size_t)(p - from));
            f->used = *needed;
        }
        return p + 1;
    }
    case 'b':
        if (*p != 't') return kc_json_literal(p, end, "false", 5);
        if (!(p = kc_json_literal(p, end, "true", 4))) return NULL;
        f->data[row >> 3] |= (uint8_t)(1 << (row & 7));
        return p;
    case 'f': case 'g':
        if (!(p = kc_json_scan_number(p, end, &number)) || !kc_json_double(&number, &real)) return NULL;
        if (f->kind == 'g') memcpy(f->data + 8 * row, &real, 8);
        else {
            uint64_t bits;
            double size = real < 0 ? -real : real;
            float narrow;
            memcpy(&bits, &real, 8);
            /* half way between two floats, the double may have been rounded; and the ends of the range are not for here */
            if ((bits & 0x1fffffff) == 0x10000000 || (size && (size < FLT_MIN || size > FLT_MAX))) return NULL;
            narrow = (float)real;
            memcpy(f->data + 4 * row, &narrow, 4);
        }
        return p;
    default: {
        int width = f->kind == 'c' ? 1 : f->kind == 's' ? 2 : f->kind == 'i' ? 4 : 8;
        uint64_t most = ((uint64_t)1 << (8 * width - 1)) - 1;
        int64_t v;
        if (!(p = kc_json_scan_number(p, end, &number)) || !number.whole || number.digits > 19) return NULL;
        if (number.mantissa > most + (uint64_t)number.negative) return NULL;
        v = (int64_t)(number.negative ? 0 - number.mantissa : number.mantissa);
        if (width == 8) memcpy(f->data + 8 * row, &v, 8);
        else if (width == 4) { int32_t w = (int32_t)v; memcpy(f->data + 4 * row, &w, 4); }
        else if (width == 2) { int16_t w = (int16_t)v; memcpy(f->data + 2 * row, &w, 2); }
        else f->data[row] = (uint8_t)v;
        return p;
    }
    }
}

static int kc_json_row(kc_json *j, int64_t row, const uint8_t *p, const uint8_t *end) {
    int64_t next = 0, i;                                   /* the fields mostly come in the columns' order */
    if (!kc_utf8_valid(p, end)) return KC_JSON_DOUBTFUL;
    p = kc_json_blank(p, end);
    if (p == end || *p != '{') return KC_JSON_DOUBTFUL;
    p = kc_json_blank(p + 1, end);
    if (p < end && *p == '}') return kc_json_blank(p + 1, end) == end ? KC_JSON_FINE : KC_JSON_DOUBTFUL;
    for (;;) {
        const uint8_t *name = p + 1;
        kc_json_field *f = NULL;
        int64_t size;
        int escapes, status = KC_JSON_DOUBTFUL;
        if (p == end || *p != '"' || !(p = kc_json_string(name, end, &escapes)) || escapes) return KC_JSON_DOUBTFUL;
        size = p - name;
        p = kc_json_blank(p + 1, end);
        if (p == end || *p != ':') return KC_JSON_DOUBTFUL;
        p = kc_json_blank(p + 1, end);
        if (p == end) return KC_JSON_DOUBTFUL;
        for (i = 0; i < j->n_fields; i++, next++) {
            if (next >= j->n_fields) next = 0;
            if (j->fields[next].name_size == size && memcmp(j->fields[next].name, name, (size_t)size) == 0) {
                f = &j->fields[next++];
                break;
            }
        }
        if (!f) p = kc_json_skip(p, end);
        else {
            if (f->seen == row + 1) return KC_JSON_DOUBTFUL;
            f->seen = row + 1;
            if (*p == 'n') p = kc_json_literal(p, end, "null", 4);
            else {
                p = kc_json_take(f, row, p, end, &j->needed, &status);
                if (p) {
                    f->validity[row >> 3] |= (uint8_t)(1 << (row & 7));
                    f->valid++;
                } else if (status == KC_JSON_FULL) {
                    j->full = f - j->fields;
                    return status;
                }
            }
        }
        if (!p) return KC_JSON_DOUBTFUL;
        p = kc_json_blank(p, end);
        if (p == end) return KC_JSON_DOUBTFUL;
        if (*p == '}') return kc_json_blank(p + 1, end) == end ? KC_JSON_FINE : KC_JSON_DOUBTFUL;
        if (*p != ',') return KC_JSON_DOUBTFUL;
        p = kc_json_blank(p + 1, end);
    }
}

/* Takes back what a row has written. */
static void kc_json_undo(kc_json *j, int64_t row) {
    uint8_t bit = (uint8_t)(1 << (row & 7));
    for (kc_json_field *f = j->fields; f < j->fields + j->n_fields; f++) {
        if (f->seen != row + 1) continue;
        f->seen = 0;
        if (f->validity[row >> 3] & bit) f->valid--;
        f->validity[row >> 3] &= (uint8_t)~bit;
        if (f->kind == 'b') f->data[row >> 3] &= (uint8_t)~bit;
        if (f->kind == 'u') f->used = f->offsets[row];
    }
}

/* Scans from a row on. Returns the number of values when all are done; the row that needs more room, with j->full >= 0; or the first whose
 * offsets are not inside the column's data, with j->full < 0. A null value is a row of nulls. */
static int64_t kc_json_scan(kc_json *j, const kc_column *values, int64_t row) {
    j->full = -1;
    for (; row < values->count; row++) {
        const uint8_t *p;
        int64_t size;
        if (kc_column_get(values, row, &p, &size) != KC_COL_OK) return row;
        if (size >= 0) {
            int status = kc_json_row(j, row, p, p + size);
            if (status != KC_JSON_FINE) kc_json_undo(j, row);
            if (status == KC_JSON_FULL) return row;
            if (status == KC_JSON_DOUBTFUL) {
                j->doubtful[row >> 3] |= (uint8_t)(1 << (row & 7));
                j->n_doubtful++;
            }
        }
        for (kc_json_field *f = j->fields; f < j->fields + j->n_fields; f++)
            if (f->kind == 'u') f->offsets[row + 1] = (int32_t)f->used;
    }
    return row;
}
#endif
