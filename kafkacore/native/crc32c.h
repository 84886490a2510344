/* CRC-32C (Castagnoli), the checksum of record batches v2. */
#ifndef KAFKACORE_CRC32C_H
#define KAFKACORE_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KC_CRC_POLY 0x82F63B78u
static uint32_t kc_crc_table[8][256];

static void kc_crc32c_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (KC_CRC_POLY & (0u - (c & 1)));
        kc_crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            kc_crc_table[t][i] = (kc_crc_table[t - 1][i] >> 8) ^ kc_crc_table[0][kc_crc_table[t - 1][i] & 255];
}
static uint32_t kc_crc_tables(uint32_t c, const uint8_t *p, size_t n) {
    for (; n; n--) c = (c >> 8) ^ kc_crc_table[0][(c ^ *p++) & 255];
    return c;
}
/* The finished CRC-32C of p, continued from a finished crc (0 to start). */
static inline uint32_t kc_crc32c(uint32_t crc, const uint8_t *p, size_t n) { return ~kc_crc_tables(~crc, p, n); }
#endif
