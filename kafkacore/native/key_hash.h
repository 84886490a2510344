/* The other hashes of keyed partitioners, as librdkafka computes them: CRC-32 (its default) and FNV-1a. Keys are short, so a table of bytes will do. */
#ifndef KAFKACORE_KEY_HASH_H
#define KAFKACORE_KEY_HASH_H
#include <stddef.h>
#include <stdint.h>

static uint32_t kc_crc32_table[256];

static void kc_crc32_init(void) {                          /* polynomial 0x04c11db7, reflected */
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) {
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
        }
        kc_crc32_table[i] = c;
    }
}

static inline uint32_t kc_crc32(const uint8_t *p, size_t n) {
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c = kc_crc32_table[(c ^ p[i]) & 0xff] ^ c >> 8;
    }
    return ~c;
}

static inline uint32_t kc_fnv1a(const uint8_t *p, size_t n) {
    uint32_t h = 0x811c9dc5u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x01000193u;
    }
    return h & 0x80000000u ? 0u - h : h;                   /* the absolute value of an int32, and 2**31 of -2**31 */
}
#endif
