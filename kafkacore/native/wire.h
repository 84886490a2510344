/* Kafka's wire primitives and record batch v2 layout, for the writers and readers in *.pxi.
 *
 * Every reader takes (position, end) and returns NULL instead of reading past end.
 * Every writer assumes that its caller reserved the bound that the matching *_size function gives.
 *
 * Record batch v2 (big endian; CRC-32C covers attributes..end):
 *   0 base offset i64 | 8 length i32 (bytes after this field) | 12 partition leader epoch i32 | 16 magic i8 (2)
 *  17 crc u32 | 21 attributes i16 (codec 0-2, timestamp type 3, transactional 4, control 5, delete horizon 6)
 *  23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64
 *  51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records
 * Record: length varint | attributes i8 (0) | timestamp delta varlong | offset delta varint
 *   | key length varint (-1 null) key | value length varint (-1 null) value | header count varint | headers
 * Header: key length varint, key (UTF-8) | value length varint (-1 null), value
 */
#ifndef KAFKACORE_WIRE_H
#define KAFKACORE_WIRE_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { KC_BATCH_HEADER = 61, KC_MAX_VARINT = 5, KC_MAX_VARLONG = 10 };

static inline uint64_t kc_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t kc_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }

static inline size_t kc_uvarint_size(uint64_t v) {
    /* 7 bits a byte; v|1 keeps the bit scan defined for 0 */
    return (size_t)(((63 - __builtin_clzll(v | 1)) * 9 + 73) >> 6);
}
static inline size_t kc_varint_size(int64_t v) { return kc_uvarint_size(kc_zigzag(v)); }

static inline uint8_t *kc_put_uvarint(uint8_t *p, uint64_t v) {
    while (v >= 0x80) { *p++ = (uint8_t)(v | 0x80); v >>= 7; }
    *p++ = (uint8_t)v;
    return p;
}
static inline uint8_t *kc_put_varint(uint8_t *p, int64_t v) { return kc_put_uvarint(p, kc_zigzag(v)); }

/* max_bytes: 5 for 32-bit values, 10 for 64-bit; NULL when truncated, too long, or out of range. */
static inline const uint8_t *kc_get_uvarint(const uint8_t *p, const uint8_t *end, int max_bytes, uint64_t *out) {
    uint64_t v = 0;
    for (int i = 0; i < max_bytes; i++) {
        if (p >= end) return NULL;
        uint64_t b = *p++;
        if (i == 9 && b > 1) return NULL;               /* more than 64 bits */
        v |= (b & 0x7f) << (7 * i);
        if (b < 0x80) {
            if (max_bytes == KC_MAX_VARINT && v > UINT32_MAX) return NULL;
            *out = v;
            return p;
        }
    }
    return NULL;
}
static inline const uint8_t *kc_get_varint(const uint8_t *p, const uint8_t *end, int max_bytes, int64_t *out) {
    uint64_t v;
    p = kc_get_uvarint(p, end, max_bytes, &v);
    if (p) *out = kc_unzigzag(v);
    return p;
}

static inline void kc_put16(uint8_t *p, int16_t v) { uint16_t u = __builtin_bswap16((uint16_t)v); memcpy(p, &u, 2); }
static inline void kc_put32(uint8_t *p, int32_t v) { uint32_t u = __builtin_bswap32((uint32_t)v); memcpy(p, &u, 4); }
static inline void kc_put64(uint8_t *p, int64_t v) { uint64_t u = __builtin_bswap64((uint64_t)v); memcpy(p, &u, 8); }
static inline int16_t kc_get16(const uint8_t *p) { uint16_t u; memcpy(&u, p, 2); return (int16_t)__builtin_bswap16(u); }
static inline int32_t kc_get32(const uint8_t *p) { uint32_t u; memcpy(&u, p, 4); return (int32_t)__builtin_bswap32(u); }
static inline int64_t kc_get64(const uint8_t *p) { uint64_t u; memcpy(&u, p, 8); return (int64_t)__builtin_bswap64(u); }

/* Bytes of a record body (without its own length varint). Lengths are -1 for null; headers_size counts the encoded headers with their count. */
static inline size_t kc_record_body_size(int64_t ts_delta, int32_t offset_delta, int64_t key_len, int64_t value_len, size_t headers_size) {
    return 1 + kc_varint_size(ts_delta) + kc_varint_size(offset_delta)
         + kc_varint_size(key_len) + (key_len > 0 ? (size_t)key_len : 0)
         + kc_varint_size(value_len) + (value_len > 0 ? (size_t)value_len : 0) + headers_size;
}
/* Writes length, attributes, deltas, key and value; the caller writes the headers (a zero byte for none) right after. */
static inline uint8_t *kc_put_record(uint8_t *p, size_t body_size, int64_t ts_delta, int32_t offset_delta,
                                     const void *key, int64_t key_len, const void *value, int64_t value_len) {
    p = kc_put_varint(p, (int64_t)body_size);
    *p++ = 0;
    p = kc_put_varint(p, ts_delta);
    p = kc_put_varint(p, offset_delta);
    p = kc_put_varint(p, key_len);
    if (key_len > 0) { memcpy(p, key, (size_t)key_len); p += key_len; }
    p = kc_put_varint(p, value_len);
    if (value_len > 0) { memcpy(p, value, (size_t)value_len); p += value_len; }
    return p;
}
#endif
