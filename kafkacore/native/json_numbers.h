/* Numbers as JSON texts: integers, and floats as the shortest decimal that reads back as the same float, in the form of Python's repr.
 *
 * Every writer stores up to KC_JW_WIDE bytes from w on, however few it keeps, and returns what follows those that it keeps.
 *
 * Whole numbers. Eight digits are made at once in the bytes of one word; leading zeros are shifted out. No branch depends on the number
 * of digits: in a column it differs from value to value, and the processor would guess it wrongly.
 *
 * Floats, two ways, both exact:
 *   1. m / 10^k with whole m < 10^15. Both are doubles without error, so their quotient is what a reader makes of the text. Doubles lie closer
 *      than such decimals, so at most one decimal of 15 digits is right; a k larger than needed gives the same number with zeros at the end,
 *      which are not written. k is what the values before had behind the point: mostly the column was rounded to so many.
 *      [test_a_column_of_rounded_doubles_keeps_no_digit_of_the_values_before, test_doubles_as_python_writes_them]
 *   2. all others: R. Giulietti, "The Schubfach way to render doubles" (2021). The decimals that read back as v lie in an interval around it. Of
 *      the steps of 10^(k+1) at most one is inside, of those of 10^k one or more; the arithmetic is by 64 x 128 bits, and only whether
 *      something is left behind the integer part counts ("round to odd"). The powers of ten are computed by Python when the first float is met.
 *      [test_every_bit_pattern_of_a_double, test_floats_as_numpy_writes_them]
 */
#ifndef KAFKACORE_JSON_NUMBERS_H
#define KAFKACORE_JSON_NUMBERS_H
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { KC_JW_WIDE = 64 };

static const char KC_JW_PAIRS[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

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

/* ---- whole numbers ---- */

#define KC_JW_ZEROS 0x3030303030303030u

/* The digits of v < 10^4, each in a byte, the first one in the lowest. */
static inline uint32_t kc_jw_four(uint32_t v) {
    uint32_t tens = v * 5243 >> 19, x = tens | (v - 100 * tens) << 16;
    tens = (x * 103 >> 10) & 0x000f000fu;
    return tens | (x - 10 * tens) << 8;
}

/* Those of v < 10^8. Halves, quarters and eighths by multiplication with 1/100 and 1/10. */
static inline uint64_t kc_jw_eight(uint32_t v) {
    uint64_t x = v / 10000 | (uint64_t)(v % 10000) << 32;
    uint64_t tens = (x * 10486 >> 20) & 0x0000007f0000007fu;
    x = tens | (x - 100 * tens) << 16;
    tens = (x * 103 >> 10) & 0x000f000f000f000fu;
    return tens | (x - 10 * tens) << 8;
}

static inline void kc_jw_put(uint8_t *w, uint64_t text) {
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    text = __builtin_bswap64(text);
#endif
    memcpy(w, &text, 8);
}

static inline void kc_jw_put_four(uint8_t *w, uint32_t text) {
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    text = __builtin_bswap32(text);
#endif
    memcpy(w, &text, 4);
}

static inline uint8_t *kc_jw_digits(uint8_t *w, uint64_t v) {
    if (v < 10000) {                                       /* most numbers of people and things, in half of the steps */
        uint32_t digits = kc_jw_four((uint32_t)v);
        int zeros = __builtin_ctz(digits | 1u << 24) >> 3;             /* the last digit stays */
        kc_jw_put_four(w, (digits | (uint32_t)KC_JW_ZEROS) >> (8 * zeros));
        return w + 4 - zeros;
    }
    if (v >= 100000000) {
        if (v >= 10000000000000000u) {
            w = kc_jw_digits(w, v / 10000000000000000u);
            kc_jw_put(w, kc_jw_eight((uint32_t)(v / 100000000 % 100000000)) | KC_JW_ZEROS);
            w += 8;
        } else w = kc_jw_digits(w, v / 100000000);
        kc_jw_put(w, kc_jw_eight((uint32_t)(v % 100000000)) | KC_JW_ZEROS);
        return w + 8;
    }
    uint64_t digits = kc_jw_eight((uint32_t)v);
    int zeros = __builtin_ctzll(digits | (uint64_t)1 << 56) >> 3;
    kc_jw_put(w, (digits | KC_JW_ZEROS) >> (8 * zeros));
    return w + 8 - zeros;
}

static inline uint8_t *kc_jw_signed(uint8_t *w, int64_t v) {
    *w = '-';
    return kc_jw_digits(w + (v < 0), v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* ---- floats ---- */

enum { KC_JW_LEAST_TEN = -292, KC_JW_LARGEST_TEN = 324 };     /* of doubles; floats need fewer */

/* 10^i as high:low of 128 bits, the first of them 1, rounded up; from 10^KC_JW_LEAST_TEN on. */
typedef struct { uint64_t high, low; } kc_jw_power;
static kc_jw_power kc_jw_powers[KC_JW_LARGEST_TEN - KC_JW_LEAST_TEN + 1];

/* floor(log2(10^e)), floor(log10(2^e)), floor(log10(3/4 2^e)) for all exponents of doubles; a shift right of a negative number rounds down. */
static inline int kc_jw_log2_of_10(int e) { return (e * 1741647) >> 19; }
static inline int kc_jw_log10_of_2(int e) { return (e * 1262611) >> 22; }
static inline int kc_jw_log10_of_3_4(int e) { return (e * 1262611 - 524031) >> 22; }

/* The integer part of g * c / 2^128, its last bit set if anything is left. */
static inline uint64_t kc_jw_to_odd(kc_jw_power g, uint64_t c) {
    unsigned __int128 product = (unsigned __int128)g.high * c + (uint64_t)((unsigned __int128)g.low * c >> 64);
    return (uint64_t)(product >> 64) | ((uint64_t)product > 1);
}

/* The shortest decimal that rounds to c * 2^q, of those the nearest, as digits * 10^*exponent; zeros may be at the end. `closer`: the float
 * below lies half as far away as the one above. */
static uint64_t kc_jw_shortest(uint64_t c, int q, int closer, int *exponent) {
    int k = closer ? kc_jw_log10_of_3_4(q) : kc_jw_log10_of_2(q);
    int shift = q + kc_jw_log2_of_10(-k) + 1;
    kc_jw_power g = kc_jw_powers[-k - KC_JW_LEAST_TEN];
    uint64_t middle = kc_jw_to_odd(g, (4 * c) << shift);                /* all three in quarters of 10^k */
    uint64_t lower = kc_jw_to_odd(g, (4 * c - 2 + (uint64_t)closer) << shift) + (c & 1);      /* a reader rounds to even: the ends belong to even c */
    uint64_t upper = kc_jw_to_odd(g, (4 * c + 2) << shift) - (c & 1);
    uint64_t s = middle / 4;
    *exponent = k;
    if (s >= 10) {
        uint64_t tens = s / 10;
        int below = lower <= 40 * tens, above = 40 * tens + 40 <= upper;
        if (below != above) { ++*exponent; return tens + (uint64_t)above; }
    }
    int below = lower <= 4 * s, above = 4 * s + 4 <= upper;
    if (below != above) return s + (uint64_t)above;
    return s + (middle > 4 * s + 2 || (middle == 4 * s + 2 && (s & 1)));
}

/* Decimal digits, the first of which is no zero, and the place of the point. 24 bytes of the buffer are read. */
static uint8_t *kc_jw_number(uint8_t *w, const uint8_t *digits, int n, int point) {
    while (n > 1 && digits[n - 1] == '0') n--;
    if (point > 16 || point < -3) {
        *w++ = digits[0];
        *w = '.';
        memcpy(w + 1, digits + 1, 16);
        if (n > 1) w += n;
        int e = point - 1;
        *w++ = 'e';
        *w++ = e < 0 ? '-' : '+';
        if (e < 0) e = -e;
        return e >= 100 ? kc_jw_padded(w, (uint32_t)e, 3) : kc_jw_two(w, (uint32_t)e);
    }
    if (point <= 0) {
        memcpy(w, "0.000", 5);
        w += 2 - point;
        memcpy(w, digits, 24);
        return w + n;
    }
    memcpy(w, digits, 24);
    if (n <= point) {
        memset(w + n, '0', (size_t)(point - n));
        memcpy(w + point, ".0", 2);
        return w + point + 2;
    }
    w[point] = '.';
    memcpy(w + point + 1, digits + point, 16);             /* point is at least 1, so at most 16 digits follow */
    return w + n + 1;
}

/* m / 10^places for 0 < places < 8 and m < 10^8, not below 10^-4. */
static inline uint8_t *kc_jw_fixed(uint8_t *w, uint32_t m, int places) {
    if (m < 10000 && places < 4) {
        uint32_t digits = kc_jw_four(m), text = digits | (uint32_t)KC_JW_ZEROS;
        int point = 4 - places, first = __builtin_ctz(digits | 1u << 24) >> 3, last = 3 - (__builtin_clz(digits | 1) >> 3);
        if (first > point - 1) first = point - 1;
        if (last < point) last = point;
        kc_jw_put_four(w, text >> (8 * first));
        w += point - first;
        *w = '.';
        kc_jw_put_four(w + 1, text >> (8 * point));
        return w + 2 + last - point;
    }
    uint64_t digits = kc_jw_eight(m), text = digits | KC_JW_ZEROS;
    int point = 8 - places, first = __builtin_ctzll(digits | (uint64_t)1 << 56) >> 3, last = 7 - (__builtin_clzll(digits | 1) >> 3);
    if (first > point - 1) first = point - 1;
    if (last < point) last = point;
    kc_jw_put(w, text >> (8 * first));
    w += point - first;
    *w = '.';
    kc_jw_put(w + 1, text >> (8 * point));
    return w + 2 + last - point;
}

static const double KC_JW_TENS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

/* Digits by the second way. *places becomes what the number has behind its point, if the first way can write such numbers. */
static __attribute__((noinline)) uint8_t *kc_jw_any_float(uint8_t *w, uint64_t c, int q, int closer, int *places) {
    uint8_t digits[KC_JW_WIDE] = {0};                      /* read beyond what was written */
    int exponent;
    uint64_t m = kc_jw_shortest(c, q, closer, &exponent);
    int n = (int)(kc_jw_digits(digits, m) - digits), point = n + exponent;
    if (places) {
        while (n > 1 && digits[n - 1] == '0') n--;
        if (n <= 15 && n - point > *places && point > -4) *places = n - point;      /* at most 18 */
    }
    return kc_jw_number(w, digits, n, point);
}

/* A finite double, in at most 32 bytes. *places, from 1 on: digits behind the point that are tried first. */
static inline uint8_t *kc_jw_double(uint8_t *w, double v, int *places) {
    uint64_t bits;
    double x = fabs(v), scaled = x * KC_JW_TENS[*places];
    memcpy(&bits, &v, 8);
    *w = '-';
    w += bits >> 63;
    if (x >= 1e-4 && scaled < 1e15) {
        uint64_t m = (uint64_t)(int64_t)(scaled + 0.5);
        if ((double)(int64_t)m / KC_JW_TENS[*places] == x) {
            if (m < 100000000 && *places < 8) return kc_jw_fixed(w, (uint32_t)m, *places);
            uint8_t digits[KC_JW_WIDE] = {0};
            int n = (int)(kc_jw_digits(digits, m) - digits);
            return kc_jw_number(w, digits, n, n - *places);
        }
    }
    if (x == 0.0) { memcpy(w, "0.0", 3); return w + 3; }
    uint64_t fraction = bits & 0xfffffffffffffu;
    int e = (int)(bits >> 52 & 0x7ff);
    return kc_jw_any_float(w, e ? fraction | (uint64_t)1 << 52 : fraction, e ? e - 1075 : -1074, !fraction && e > 1, places);
}

/* A finite float. */
static inline uint8_t *kc_jw_float(uint8_t *w, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    *w = '-';
    w += bits >> 31;
    if (v == 0.0f) { memcpy(w, "0.0", 3); return w + 3; }
    uint32_t fraction = bits & 0x7fffff;
    int e = (int)(bits >> 23 & 0xff);
    return kc_jw_any_float(w, e ? fraction | 1u << 23 : fraction, e ? e - 150 : -149, !fraction && e > 1, NULL);
}
#endif
