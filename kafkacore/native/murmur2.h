/* MurmurHash2, 32 bit, seed 0x9747b28c, signed result: the hash of Kafka's keyed partitioners (org.apache.kafka.common.utils.Utils.murmur2). */
#ifndef KAFKACORE_MURMUR2_H
#define KAFKACORE_MURMUR2_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int32_t kc_murmur2(const uint8_t *p, size_t n) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)n;
    for (; n >= 4; n -= 4, p += 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        k *= m;
        k ^= k >> 24;
        h = (h * m) ^ (k * m);
    }
    switch (n) {
    case 3: h ^= (uint32_t)p[2] << 16; /* fall through */
    case 2: h ^= (uint32_t)p[1] << 8;  /* fall through */
    case 1: h = (h ^ p[0]) * m;
    }
    h = (h ^ (h >> 13)) * m;
    return (int32_t)(h ^ (h >> 15));
}
#endif
