/* JSON objects as Arrow columns, for flat schemas: one pass over each value, written straight into the columns' buffers.
 *
 * A value is taken only if there can be no two opinions about it: one object of strict JSON (RFC 8259) in valid UTF-8, no column's name
 * twice, no escapes in names, and under every column's name null or exactly what the column holds. All else is left, as a row of nulls
 * whose bit in `doubtful` is set, to readers that know the odd cases; so nothing here decides what is wrong, nor how a number that does not
 * fit or has too many digits is to be read.
 *
 * What is read counts only up to the value's end. Words may be loaded beyond it, but not beyond `limit`, where readable memory ends. Nesting
 * takes no stack. Nothing is allocated here: where a string does not fit, the scan stops before its row, says what it needs, and goes on
 * there when the caller has made room.
 *
 * The fast case of each step comes first: the name that is expected next, a short string, a number of few digits, each in a few loads and
 * without a loop. It takes what the general case behind it would take, or leaves it to that.
 */
#ifndef KAFKACORE_JSON_COLUMNS_H
#define KAFKACORE_JSON_COLUMNS_H
#include <float.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "columns.h"
#include "utf8.h"

enum { KC_JSON_FINE, KC_JSON_DOUBTFUL, KC_JSON_FULL };
enum { KC_JSON_KEY_WORDS = 4, KC_JSON_INLINE = 12, KC_JSON_SLACK = 16 };
enum { KC_JSON_DEPTH = 64, KC_JSON_NUMBER_BYTES = 400 };   /* Python may be set to read no integer of more than 640 digits */

/* A column: kinds are the letters of Arrow's C interface, but v for string views (vu). Validity starts as ones, the data of booleans as zeros,
 * offsets with one zero. */
typedef struct {
    const uint8_t *name;
    int64_t name_size;
    int kind;                  /* c s i l: int8 to int64; f g: float, double; b: boolean; u U v: string, large string, string view */
    uint8_t *validity, *data;  /* v: 16 bytes of data for each row */
    void *offsets;             /* u U: count + 1 */
    uint8_t *text;             /* u U v: with KC_JSON_SLACK bytes behind its capacity; of views that of the strings which do not fit them */
    int64_t used, capacity;    /* of text */
    int64_t nulls;
    int64_t named, given;      /* 1 + the last row that named it; that had something else than null there */
    int64_t mark;              /* what was used before that row named it */
    uint64_t key[KC_JSON_KEY_WORDS], key_mask[KC_JSON_KEY_WORDS];
    int64_t key_size;          /* of "name": with quotes and colon; 0 if it is too long for that */
} kc_json_field;

typedef struct {
    kc_json_field *fields;
    int64_t n_fields;
    uint8_t *doubtful;         /* a bit per row, zeros to start with */
    int64_t n_doubtful;
    int64_t full, needed;      /* which field's text is full, and how many bytes it must hold at least */
} kc_json;

typedef struct {
    uint64_t mantissa;         /* right if there are at most 19 digits */
    int64_t digits, exponent;  /* significant digits; of ten, behind the last digit */
    int negative, whole;       /* whole: neither a point nor an exponent */
} kc_json_number;

static inline uint64_t kc_json_load(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline const uint8_t *kc_json_blank(const uint8_t *p, const uint8_t *end) {
    if (p < end && *p > ' ') return p;
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

#if defined(__SSE2__)
/* A bit for each of 16 bytes that is a quote, a backslash or a control character; and for each that is not ASCII. */
static inline unsigned kc_json_stops(const uint8_t *p, unsigned *high) {
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
    *high = (unsigned)_mm_movemask_epi8(v);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1f)), v)));
}
#endif

static const uint8_t *kc_json_any_string(const uint8_t *p, const uint8_t *end, int *escapes) {
    const uint8_t *from = p;
    unsigned high = 0;
    *escapes = 0;
    for (;;) {
#if defined(__SSE2__)
        while (end - p >= 16) {
            unsigned more, hit = kc_json_stops(p, &more);
            if (hit) {
                high |= more & ((hit & (0 - hit)) - 1);
                p += __builtin_ctz(hit);
                break;
            }
            high |= more;
            p += 16;
        }
#endif
        while (end - p >= 8) {                             /* eight bytes of which none is a quote, a backslash or a control character */
            uint64_t v = kc_json_load(p), quote = v ^ 0x2222222222222222u, slash = v ^ 0x5c5c5c5c5c5c5c5cu;
            uint64_t hit = ((quote - 0x0101010101010101u) & ~quote) | ((slash - 0x0101010101010101u) & ~slash) |
                           ((v - 0x2020202020202020u) & ~v);
            hit &= 0x8080808080808080u;
            if (hit) break;
            high |= (v & 0x8080808080808080u) != 0;
            p += 8;
        }
        while (p < end && *p >= 0x20 && *p != '"' && *p != '\\') high |= *p++ & 0x80;
        if (p == end || *p < 0x20) return NULL;
        if (*p == '"') return high && !kc_utf8_valid(from, p) ? NULL : p;
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

/* From behind a string's first quote to its last one, or NULL, also if it is not UTF-8. Says whether there are escapes between. */
static inline const uint8_t *kc_json_string(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int *escapes) {
#if defined(__SSE2__)
    if (limit - p >= 16) {
        unsigned high, hit = kc_json_stops(p, &high), first = hit & (0 - hit);
        if (hit && !(high & (first - 1))) {
            const uint8_t *at = p + __builtin_ctz(hit);
            if (at < end && *at == '"') { *escapes = 0; return at; }
        }
    }
#else
    (void)limit;
#endif
    return kc_json_any_string(p, end, escapes);
}

/* What a string of escapes means; kc_json_string has found it right, and what it means is never longer. Returns the end of it. */
static uint8_t *kc_json_unescape(uint8_t *w, const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        if (*p != '\\') { *w++ = *p++; continue; }
        if (end - p < 2) break;                            /* changed since: what is written stays within the slack */
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

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* How many of eight bytes, from the first, are digits. */
static inline int kc_json_digits(uint64_t v) {
    uint64_t other = ((v & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u) | (((v + 0x0606060606060606u) & 0xf0f0f0f0f0f0f0f0u) ^ 0x3030303030303030u);
    return other ? __builtin_ctzll(other) >> 3 : 8;       /* a carry changes only what is behind one that is no digit */
}

/* The number that the first n of eight bytes are the digits of; n is 1 to 8. */
static inline uint64_t kc_json_digits_value(uint64_t v, int n) {
    v = (v << (64 - 8 * n)) & 0x0f0f0f0f0f0f0f0fu;
    v = (v * 2561) >> 8;
    v = ((v & 0x00ff00ff00ff00ffu) * 6553601) >> 16;
    return ((v & 0x0000ffff0000ffffu) * 42949672960001u) >> 32;
}
#endif

static inline const uint8_t *kc_json_more_digits(const uint8_t *p, const uint8_t *end, uint64_t *m) {
    uint64_t found = *m;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - p >= 8) {
        uint64_t v = kc_json_load(p);
        if (kc_json_digits(v) < 8) break;
        found = found * 100000000 + kc_json_digits_value(v, 8);
        p += 8;
    }
#endif
    while (p < end && (uint8_t)(*p - '0') < 10) found = found * 10 + (uint64_t)(*p++ - '0');
    *m = found;
    return p;
}

/* One number; its end, or NULL. */
static const uint8_t *kc_json_any_number(const uint8_t *p, const uint8_t *end, kc_json_number *n) {
    const uint8_t *begin = p, *part;
    uint64_t m = 0;
    int64_t exponent = 0;
    n->negative = p < end && *p == '-';
    n->whole = 1;
    p += n->negative;
    part = p;
    if (p < end && *p == '0') { p++; part++; }
    else {
        p = kc_json_more_digits(p, end, &m);
        if (p == part) return NULL;
    }
    n->digits = p - part;
    if (p < end && *p == '.') {
        const uint8_t *point = ++p;
        n->whole = 0;
        if (!n->digits) while (p < end && *p == '0') p++;  /* zeros in front are not significant */
        part = p;
        p = kc_json_more_digits(p, end, &m);
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

/* One number that begins at p < end; its end, or NULL. */
static inline const uint8_t *kc_json_scan_number(const uint8_t *p, const uint8_t *end, const uint8_t *limit, kc_json_number *n) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static const uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    if (limit - p >= 24) {                                 /* at most 7 digits before and 7 behind the point, no exponent */
        int negative = *p == '-';
        const uint8_t *q = p + negative;
        uint64_t v = kc_json_load(q);
        int whole = kc_json_digits(v), places;
        if (whole && whole < 8 && (*q != '0' || whole == 1)) {
            n->mantissa = kc_json_digits_value(v, whole);
            n->negative = negative;
            n->digits = whole;
            n->exponent = 0;
            n->whole = 1;
            q += whole;
            if (*q == '.') {
                v = kc_json_load(q + 1);
                places = kc_json_digits(v);
                if (!places || places == 8) return kc_json_any_number(p, end, n);
                n->mantissa = n->mantissa * tens[places] + kc_json_digits_value(v, places);
                n->digits += places;
                n->exponent = -places;
                n->whole = 0;
                q += 1 + places;
            }
            if (q <= end && (*q | 0x20) != 'e') return q;
        }
    }
#else
    (void)limit;
#endif
    return kc_json_any_number(p, end, n);
}

/* The double nearest to a number, halves to even. 0 if that is not known here: a negative zero, more digits or a larger exponent. */
static inline int kc_json_double(const kc_json_number *n, double *out) {
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
static const uint8_t *kc_json_skip(const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
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
            if (!(p = kc_json_string(p + 1, end, limit, &escapes))) return NULL;
            p++;
            break;
        case 't': p = kc_json_literal(p, end, "true", 4); break;
        case 'f': p = kc_json_literal(p, end, "false", 5); break;
        case 'n': p = kc_json_literal(p, end, "null", 4); break;
        default: p = kc_json_scan_number(p, end, limit, &number);
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
        if (p == end || *p != '"' || !(p = kc_json_string(p + 1, end, limit, &escapes))) return NULL;
        p = kc_json_blank(p + 1, end);
        if (p == end || *p != ':') return NULL;
        p = kc_json_blank(p + 1, end);
    }
}

/* A string of n bytes as a view; those that do not fit one are at the end of the text already. */
static inline void kc_json_view(uint8_t *view, const uint8_t *from, int64_t n, const uint8_t *limit, int64_t at) {
    int32_t size = (int32_t)n, place[2] = {0, (int32_t)at};
    if (n > KC_JSON_INLINE) {
        memcpy(view, &size, 4);
        memcpy(view + 4, from, 4);
        memcpy(view + 8, place, 8);                        /* all in the first data buffer */
        return;
    }
#if defined(__SSE2__)
    static const uint8_t masks[32] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    if (limit - from >= 16) {
        __m128i v = _mm_and_si128(_mm_loadu_si128((const __m128i *)from), _mm_loadu_si128((const __m128i *)(masks + 16 - n)));
        _mm_storeu_si128((__m128i *)view, _mm_or_si128(_mm_slli_si128(v, 4), _mm_cvtsi32_si128(size)));
        return;
    }
#else
    (void)limit;
#endif
    memset(view, 0, 16);
    memcpy(view, &size, 4);
    memcpy(view + 4, from, (size_t)n);
}

/* The string between two quotes. Returns KC_JSON_FINE, or why not. */
static inline int kc_json_put(kc_json_field *f, int64_t row, const uint8_t *p, const uint8_t *end, const uint8_t *limit, int escapes,
                              int64_t *needed) {
    int64_t n = end - p;
    uint8_t *to = f->text + f->used;
    if (f->kind == 'v' && n <= KC_JSON_INLINE && !escapes) {
        kc_json_view(f->data + 16 * row, p, n, limit, 0);
        return KC_JSON_FINE;
    }
    *needed = f->used + n;
    if (*needed > INT32_MAX && f->kind != 'U') return KC_JSON_DOUBTFUL;
    if (*needed > f->capacity) return KC_JSON_FULL;
    if (escapes) n = kc_json_unescape(to, p, end) - to;
    else if (n <= 16 && limit - p >= 16) memcpy(to, p, 16);
    else memcpy(to, p, (size_t)n);
    if (f->kind == 'v') {
        kc_json_view(f->data + 16 * row, to, n, to + n, f->used);
        if (n > KC_JSON_INLINE) f->used += n;
        return KC_JSON_FINE;
    }
    f->used += n;
    if (f->kind == 'u') ((int32_t *)f->offsets)[row + 1] = (int32_t)f->used;
    else ((int64_t *)f->offsets)[row + 1] = f->used;
    return KC_JSON_FINE;
}

/* The value of a column that begins at p and is not null; its end, or NULL, with *status saying why if it is not doubtful. */
static inline const uint8_t *kc_json_take(kc_json_field *f, int64_t row, const uint8_t *p, const uint8_t *end, const uint8_t *limit,
                                          int64_t *needed, int *status) {
    kc_json_number number;
    double real;
    switch (f->kind) {
    case 'u': case 'U': case 'v': {
        const uint8_t *from = p + 1;
        int escapes;
        if (*p != '"' || !(p = kc_json_string(from, end, limit, &escapes))) return NULL;
        *status = kc_json_put(f, row, from, p, limit, escapes, needed);
        return *status == KC_JSON_FINE ? p + 1 : NULL;
    }
    case 'b':
        if (*p != 't') return kc_json_literal(p, end, "false", 5);
        if (!(p = kc_json_literal(p, end, "true", 4))) return NULL;
        f->data[row >> 3] |= (uint8_t)(1 << (row & 7));
        return p;
    case 'f': case 'g':
        if (!(p = kc_json_scan_number(p, end, limit, &number)) || !kc_json_double(&number, &real)) return NULL;
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
        if (!(p = kc_json_scan_number(p, end, limit, &number)) || !number.whole || number.digits > 19) return NULL;
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

/* Whether the name at p is this field's, as it is mostly written: without an escape, the colon right behind it. */
static inline int kc_json_named(const kc_json_field *f, const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
    uint64_t other;
    if (!f->key_size || end - p <= f->key_size || limit - p < 8 * KC_JSON_KEY_WORDS) return 0;
    other = ((kc_json_load(p) ^ f->key[0]) & f->key_mask[0]) | ((kc_json_load(p + 8) ^ f->key[1]) & f->key_mask[1]);
    if (f->key_size > 16)
        other |= ((kc_json_load(p + 16) ^ f->key[2]) & f->key_mask[2]) | ((kc_json_load(p + 24) ^ f->key[3]) & f->key_mask[3]);
    return !other;
}

/* Prepares `key`, once the name is there. */
static void kc_json_prepare(kc_json_field *f) {
    uint8_t key[8 * KC_JSON_KEY_WORDS] = {'"'}, mask[8 * KC_JSON_KEY_WORDS] = {0};
    int64_t size = f->name_size + 3;
    f->key_size = 0;
    if (size > 8 * KC_JSON_KEY_WORDS) return;
    for (int64_t i = 0; i < f->name_size; i++)
        if (f->name[i] < 0x20 || f->name[i] == '"' || f->name[i] == '\\') return;  /* can only be written with an escape */
    memcpy(key + 1, f->name, (size_t)f->name_size);
    memcpy(key + 1 + f->name_size, "\":", 2);
    memset(mask, 255, (size_t)size);
    memcpy(f->key, key, sizeof key);
    memcpy(f->key_mask, mask, sizeof mask);
    f->key_size = size;
}

/* The row is null in each column that it gives nothing to. */
static void kc_json_nulls(kc_json *j, int64_t row) {
    for (kc_json_field *f = j->fields; f < j->fields + j->n_fields; f++) {
        if (f->given == row + 1) continue;
        f->nulls++;
        f->validity[row >> 3] &= (uint8_t)~(1 << (row & 7));
        switch (f->kind) {
        case 'b': f->data[row >> 3] &= (uint8_t)~(1 << (row & 7)); break;
        case 'c': f->data[row] = 0; break;
        case 's': memset(f->data + 2 * row, 0, 2); break;
        case 'i': case 'f': memset(f->data + 4 * row, 0, 4); break;
        case 'l': case 'g': memset(f->data + 8 * row, 0, 8); break;
        case 'v': memset(f->data + 16 * row, 0, 16); break;
        case 'u': ((int32_t *)f->offsets)[row + 1] = (int32_t)f->used; break;
        default: ((int64_t *)f->offsets)[row + 1] = f->used;
        }
    }
}

static int kc_json_row(kc_json *j, int64_t row, const uint8_t *p, const uint8_t *end, const uint8_t *limit) {
    kc_json_field *const last = j->fields + j->n_fields;
    kc_json_field *next = j->fields;                       /* the fields mostly come in the columns' order */
    int64_t given = 0;
    p = kc_json_blank(p, end);
    if (p == end || *p != '{') return KC_JSON_DOUBTFUL;
    p = kc_json_blank(p + 1, end);
    if (p < end && *p == '}') {
        if (kc_json_blank(p + 1, end) != end) return KC_JSON_DOUBTFUL;
        kc_json_nulls(j, row);
        return KC_JSON_FINE;
    }
    for (;;) {
        kc_json_field *f = NULL;
        int status = KC_JSON_DOUBTFUL;
        if (next < last && kc_json_named(next, p, end, limit)) {
            f = next++;
            p += f->key_size;
        } else {
            const uint8_t *name = p + 1;
            int escapes;
            if (p == end || *p != '"' || !(p = kc_json_string(name, end, limit, &escapes)) || escapes) return KC_JSON_DOUBTFUL;
            for (int64_t i = 0; i < j->n_fields; i++, next++) {
                if (next >= last) next = j->fields;
                if (next->name_size == p - name && memcmp(next->name, name, (size_t)(p - name)) == 0) {
                    f = next++;
                    break;
                }
            }
            p = kc_json_blank(p + 1, end);
            if (p == end || *p != ':') return KC_JSON_DOUBTFUL;
            p++;
        }
        p = kc_json_blank(p, end);
        if (p == end) return KC_JSON_DOUBTFUL;
        if (!f) p = kc_json_skip(p, end, limit);
        else {
            if (f->named == row + 1) return KC_JSON_DOUBTFUL;
            f->named = row + 1;
            f->mark = f->used;
            if (*p == 'n') p = kc_json_literal(p, end, "null", 4);
            else {
                p = kc_json_take(f, row, p, end, limit, &j->needed, &status);
                if (p) {
                    f->given = row + 1;
                    given++;
                } else if (status == KC_JSON_FULL) {
                    j->full = f - j->fields;
                    return status;
                }
            }
        }
        if (!p) return KC_JSON_DOUBTFUL;
        p = kc_json_blank(p, end);
        if (p == end) return KC_JSON_DOUBTFUL;
        if (*p == '}') {
            if (kc_json_blank(p + 1, end) != end) return KC_JSON_DOUBTFUL;
            if (given < j->n_fields) kc_json_nulls(j, row);
            return KC_JSON_FINE;
        }
        if (*p != ',') return KC_JSON_DOUBTFUL;
        p = kc_json_blank(p + 1, end);
    }
}

/* Takes back what a row has written and that counts. */
static void kc_json_undo(kc_json *j, int64_t row) {
    for (kc_json_field *f = j->fields; f < j->fields + j->n_fields; f++) {
        if (f->named == row + 1) f->used = f->mark;
        f->named = f->given = 0;
        if (f->kind == 'b') f->data[row >> 3] &= (uint8_t)~(1 << (row & 7));
    }
}

/* One value, of which size bytes are at p; a negative size is a null value, which is a row of nulls. Returns 0 if it needs more room. */
static inline int kc_json_value(kc_json *j, int64_t row, const uint8_t *p, int64_t size, const uint8_t *limit) {
    int status;
    if (size < 0) { kc_json_nulls(j, row); return 1; }
    status = kc_json_row(j, row, p, p + size, limit);
    if (status == KC_JSON_FINE) return 1;
    kc_json_undo(j, row);
    if (status == KC_JSON_FULL) return 0;
    kc_json_nulls(j, row);
    j->doubtful[row >> 3] |= (uint8_t)(1 << (row & 7));
    j->n_doubtful++;
    return 1;
}

/* Scans from a row on. Returns the number of values when all are done; the row that needs more room, with j->full >= 0; or the first whose
 * offsets are not inside the column's data, with j->full < 0. */
static int64_t kc_json_scan(kc_json *j, const kc_column *values, int64_t row) {
    j->full = -1;
    for (; row < values->count; row++) {
        const uint8_t *p;
        int64_t size;
        if (kc_column_get(values, row, &p, &size) != KC_COL_OK) return row;
        if (!kc_json_value(j, row, p, size, values->data + values->limit)) return row;
    }
    return row;
}

/* The same for the values of fetched records up to `stop`, which lie at base + start within their region, as it has been checked. Ends with the
 * first doubtful value. */
static int64_t kc_json_scan_records(kc_json *j, const uint8_t *base, int64_t region, const int32_t *starts, const int32_t *lengths,
                                    int64_t row, int64_t stop) {
    j->full = -1;
    for (; row < stop && !j->n_doubtful; row++)
        if (!kc_json_value(j, row, base + starts[row], lengths[row], base + region)) return row;
    return row;
}
#endif
