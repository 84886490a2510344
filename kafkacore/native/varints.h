/* Arrays of varints: eight one-byte values at a time, and without a branch per byte for the others.
 *
 * Mixed lengths make the loop "while more bytes" mispredict at every value. Here a value of up to 56 bits is spread into (or gathered
 * from) the eight 7-bit groups of one word by three shift-and-mask steps, its length comes from a bit scan, and whole words are
 * stored (or loaded). So an encoder's output needs 8 bytes of room after its last value, and the decoder's last 8 bytes are read byte by byte.
 */
#ifndef KAFKACORE_VARINTS_H
#define KAFKACORE_VARINTS_H
#include "wire.h"

#define KC_TOP_BITS 0x8080808080808080ull

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define KC_LE64(w) __builtin_bswap64(w)
#else
#define KC_LE64(w) (w)
#endif
static inline uint64_t kc_load_le64(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return KC_LE64(w); }
static inline void kc_store_le64(uint8_t *p, uint64_t w) { w = KC_LE64(w); memcpy(p, &w, 8); }

/* 56 bits -> 8 bytes of 7 bits */
static inline uint64_t kc_spread7(uint64_t x) {
    x = (x & 0x000000000fffffffull) | (x & 0x00fffffff0000000ull) << 4;
    x = (x & 0x00003fff00003fffull) | (x & 0x0fffc0000fffc000ull) << 2;
    return (x & 0x007f007f007f007full) | (x & 0x3f803f803f803f80ull) << 1;
}
static inline uint64_t kc_gather7(uint64_t x) {
    x = (x & 0x007f007f007f007full) | (x & 0x7f007f007f007f00ull) >> 1;
    x = (x & 0x00003fff00003fffull) | (x & 0x3fff00003fff0000ull) >> 2;
    return (x & 0x000000000fffffffull) | (x & 0x0fffffff00000000ull) >> 4;
}

/* Needs room for n times KC_MAX_VARLONG bytes, and 8 bytes more. The values are the caller's, who may change them: each is read once. */
static inline uint8_t *kc_put_varints(uint8_t *p, const uint64_t *v, size_t n, int zigzag) {
    size_t i = 0;
    while (i < n) {
        if (n - i >= 8) {
            uint64_t w[8], all = 0;
            for (int k = 0; k < 8; k++) { w[k] = zigzag ? kc_zigzag((int64_t)v[i + k]) : v[i + k]; all |= w[k]; }
            if (all < 0x80) {
                kc_store_le64(p, w[0] | w[1] << 8 | w[2] << 16 | w[3] << 24 | w[4] << 32 | w[5] << 40 | w[6] << 48 | w[7] << 56);
                p += 8;
                i += 8;
                continue;
            }
            if (all >> 56 == 0) {
                for (int k = 0; k < 8; k++) {
                    size_t size = kc_uvarint_size(w[k]);
                    kc_store_le64(p, kc_spread7(w[k]) | (KC_TOP_BITS & ((1ull << (8 * size - 8)) - 1)));
                    p += size;
                }
                i += 8;
                continue;
            }
        }
        p = kc_put_uvarint(p, zigzag ? kc_zigzag((int64_t)v[i]) : v[i]);
        i++;
    }
    return p;
}

/* The position after n values, or NULL with *bad = the start of the value that is truncated or does not fit 64 bits. */
static inline const uint8_t *kc_get_varints(const uint8_t *p, const uint8_t *end, uint64_t *v, size_t n, int zigzag, const uint8_t **bad) {
    size_t i = 0;
    while (i < n) {
        if (end - p >= 8) {
            uint64_t w = kc_load_le64(p), stops = ~w & KC_TOP_BITS;
            if (stops == KC_TOP_BITS && n - i >= 8) {
                for (int k = 0; k < 8; k++) {
                    uint64_t u = p[k];
                    v[i + k] = zigzag ? (uint64_t)kc_unzigzag(u) : u;
                }
                p += 8;
                i += 8;
                continue;
            }
            if (stops) {
                uint64_t first = stops & (0 - stops);   /* the top bit of the value's last byte */
                uint64_t u = kc_gather7(w & (first | (first - 1)));
                v[i++] = zigzag ? (uint64_t)kc_unzigzag(u) : u;
                p += (__builtin_ctzll(first) >> 3) + 1;
                continue;
            }
        }
        uint64_t u = 0;
        const uint8_t *next = kc_get_uvarint(p, end, KC_MAX_VARLONG, &u);
        if (!next) { *bad = p; return NULL; }
        v[i++] = zigzag ? (uint64_t)kc_unzigzag(u) : u;
        p = next;
    }
    return p;
}
#endif
