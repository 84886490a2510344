/* Whether bytes are UTF-8 as RFC 3629 has it. */
#ifndef KAFKACORE_UTF8_H
#define KAFKACORE_UTF8_H
#include <stdint.h>
#include <string.h>

static inline uint64_t kc_utf8_load(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

static int kc_utf8_valid(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        if (end - p >= 8 && !(kc_utf8_load(p) & 0x8080808080808080u)) { p += 8; continue; }
        uint8_t c = *p++;
        if (c < 0x80) continue;
        uint8_t low = 0x80, high = 0xbf;                   /* of the second byte: no long forms, no surrogates, at most U+10FFFF */
        int more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
        if (c < 0xc2 || c > 0xf4 || end - p < more) return 0;
        if (c == 0xe0) low = 0xa0;
        if (c == 0xed) high = 0x9f;
        if (c == 0xf0) low = 0x90;
        if (c == 0xf4) high = 0x8f;
        if (*p < low || *p > high) return 0;
        for (int i = 1; i < more; i++)
            if ((p[i] & 0xc0) != 0x80) return 0;
        p += more;
    }
    return 1;
}
#endif
