/* CRC-32C (Castagnoli), the checksum of record batches v2, by the best means the processor has.
 *
 * Kernels, chosen once by kc_crc32c_init (each takes and gives the raw register, that is, not inverted):
 *   tables    8 lookups for 8 bytes; any processor
 *   sse42     the crc32 instruction on three streams at once, for it has a latency of 3 cycles but starts every cycle
 *   avx512vl  four 128-bit carry-less folds beside three crc32 streams: both units busy
 *   vpclmul   the same with 512-bit folds (Zen 4, Ice Lake and later)
 *   armv8     like sse42, with ARM's crc32c and pmull
 *
 * The mathematics, once. Bits are reflected: bit 31 of a register is x^0. P is the polynomial, all values are taken mod P.
 *   - Appending d zero bits to data multiplies its register by x^d. So the streams of one block are joined by multiplying the earlier
 *     ones by x^(bits after them) and adding (xor).
 *   - A carry-less product of two 32-bit registers put through crc32_u64 is a*b*x^33 (x for the reflected product's missing bit, x^32
 *     because the instruction appends them); hence every joining constant is x^(d - 33).
 *   - A fold moves 128 bits forward by d bits: the half that comes first (low, 64 bits earlier) is multiplied by x^(d + 64), the other by
 *     x^d. The constants lie in the low 32 bits of a 64-bit operand: x^(d + 64 - 33) and x^(d - 33).
 *   - Vectors are never reduced mod P by hand: crc32_u64 over the last 16 bytes does that.
 * Streams are 24*j bytes long for some j, so one table of x^(8*24*j - 33) serves every join.
 */
#ifndef KAFKACORE_CRC32C_H
#define KAFKACORE_CRC32C_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#define KC_CRC_X86 1
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#define KC_CRC_ARM 1
#include <arm_acle.h>
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#define KC_CRC_POLY 0x82F63B78u
enum { KC_CRC_MAX_STREAM = 64 };                        /* the longest stream of a block, in 24 byte steps */

typedef uint32_t (*kc_crc_fn)(uint32_t c, const uint8_t *p, size_t n);

static uint32_t kc_crc_table[8][256];
static uint32_t kc_crc_power[40];                       /* x^(2^i) */
static uint32_t kc_crc_shift[3 * KC_CRC_MAX_STREAM + 1];   /* [j] = x^(8*24*j - 33) */

static inline uint64_t kc_crc_load64(const uint8_t *p) { uint64_t w; memcpy(&w, p, 8); return w; }
static inline uint32_t kc_crc_load32(const uint8_t *p) { uint32_t w; memcpy(&w, p, 4); return w; }
static inline uint16_t kc_crc_load16(const uint8_t *p) { uint16_t w; memcpy(&w, p, 2); return w; }

static uint32_t kc_crc_multiply(uint32_t a, uint32_t b) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) {
        if (a & (0x80000000u >> i)) r ^= b;
        b = (b >> 1) ^ (KC_CRC_POLY & (0u - (b & 1)));
    }
    return r;
}
static uint32_t kc_crc_x_to_the(uint64_t n) {
    uint32_t r = 0x80000000u;                           /* x^0 */
    for (int i = 0; n; i++, n >>= 1)
        if (n & 1) r = kc_crc_multiply(r, kc_crc_power[i]);
    return r;
}

static uint32_t kc_crc_tables(uint32_t c, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        /* by bytes, so that the order of a machine's bytes does not matter */
        uint32_t lo = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = kc_crc_table[7][lo & 255] ^ kc_crc_table[6][(lo >> 8) & 255] ^ kc_crc_table[5][(lo >> 16) & 255] ^ kc_crc_table[4][lo >> 24]
          ^ kc_crc_table[3][p[4]] ^ kc_crc_table[2][p[5]] ^ kc_crc_table[1][p[6]] ^ kc_crc_table[0][p[7]];
    }
    while (n--) c = (c >> 8) ^ kc_crc_table[0][(c ^ *p++) & 255];
    return c;
}

/* The one-stream and three-stream kernels, the same for x86 and ARM: CRC64.. are the instructions, JOIN is a*b*x^33. */
#define KC_CRC_DEFINE_SCALAR(TARGET, CRC64, CRC32, CRC16, CRC8, JOIN, ONE, THREE)                                                       \
TARGET static inline uint32_t ONE(uint32_t c, const uint8_t *p, size_t n) {                                                             \
    for (; n >= 8; n -= 8, p += 8) c = CRC64(c, kc_crc_load64(p));                                                                      \
    if (n & 4) { c = CRC32(c, kc_crc_load32(p)); p += 4; }                                                                              \
    if (n & 2) { c = CRC16(c, kc_crc_load16(p)); p += 2; }                                                                              \
    if (n & 1) c = CRC8(c, *p);                                                                                                         \
    return c;                                                                                                                           \
}                                                                                                                                       \
TARGET static uint32_t THREE(uint32_t c, const uint8_t *p, size_t n) {                                                                  \
    while (n >= 144) {                                  /* below that the join costs more than it saves */                              \
        size_t j = n / 72 < KC_CRC_MAX_STREAM ? n / 72 : KC_CRC_MAX_STREAM, length = 24 * j;                                            \
        uint32_t s0 = c, s1 = 0, s2 = 0;                                                                                                \
        const uint8_t *q = p, *stop = p + length;                                                                                       \
        do {                                                                                                                            \
            s0 = CRC64(s0, kc_crc_load64(q));                                                                                           \
            s1 = CRC64(s1, kc_crc_load64(q + length));                                                                                  \
            s2 = CRC64(s2, kc_crc_load64(q + 2 * length));                                                                              \
            s0 = CRC64(s0, kc_crc_load64(q + 8));                                                                                       \
            s1 = CRC64(s1, kc_crc_load64(q + length + 8));                                                                              \
            s2 = CRC64(s2, kc_crc_load64(q + 2 * length + 8));                                                                          \
            s0 = CRC64(s0, kc_crc_load64(q + 16));                                                                                      \
            s1 = CRC64(s1, kc_crc_load64(q + length + 16));                                                                             \
            s2 = CRC64(s2, kc_crc_load64(q + 2 * length + 16));                                                                         \
            q += 24;                                                                                                                    \
        } while (q != stop);                                                                                                            \
        c = JOIN(s0, kc_crc_shift[2 * j]) ^ JOIN(s1, kc_crc_shift[j]) ^ s2;                                                             \
        p += 3 * length;                                                                                                                \
        n -= 3 * length;                                                                                                                \
    }                                                                                                                                   \
    return ONE(c, p, n);                                                                                                                \
}

#if KC_CRC_X86
#define KC_SSE42 __attribute__((target("sse4.2,crc32,pclmul")))
#define KC_AVX512VL __attribute__((target("sse4.2,crc32,pclmul,avx512f,avx512vl")))
#define KC_VPCLMUL __attribute__((target("sse4.2,crc32,pclmul,avx512f,avx512vl,vpclmulqdq")))

KC_SSE42 static inline uint32_t kc_x86_crc64(uint32_t c, uint64_t w) { return (uint32_t)_mm_crc32_u64(c, w); }
KC_SSE42 static inline uint32_t kc_x86_join(uint32_t a, uint32_t b) {
    __m128i r = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(r));
}
KC_CRC_DEFINE_SCALAR(KC_SSE42, kc_x86_crc64, _mm_crc32_u32, _mm_crc32_u16, _mm_crc32_u8, kc_x86_join, kc_crc_sse42_one, kc_crc_sse42)

/* 24 bytes of each of three scalar streams. */
#define KC_SCALAR_STEP(q)                                                                                       \
    do {                                                                                                        \
        s0 = kc_x86_crc64(s0, kc_crc_load64(q));                                                                \
        s1 = kc_x86_crc64(s1, kc_crc_load64((q) + length));                                                     \
        s2 = kc_x86_crc64(s2, kc_crc_load64((q) + 2 * length));                                                 \
        s0 = kc_x86_crc64(s0, kc_crc_load64((q) + 8));                                                          \
        s1 = kc_x86_crc64(s1, kc_crc_load64((q) + length + 8));                                                 \
        s2 = kc_x86_crc64(s2, kc_crc_load64((q) + 2 * length + 8));                                             \
        s0 = kc_x86_crc64(s0, kc_crc_load64((q) + 16));                                                         \
        s1 = kc_x86_crc64(s1, kc_crc_load64((q) + length + 16));                                                \
        s2 = kc_x86_crc64(s2, kc_crc_load64((q) + 2 * length + 16));                                            \
    } while (0)

static uint32_t kc_fold_128[2], kc_fold_256[2], kc_fold_384[2], kc_fold_512[2], kc_fold_2048[2];   /* x^(d+31), x^(d-33) */
#define KC_FOLD_LANE(k) 0, (int)(k)[1], 0, (int)(k)[0]  /* one 128-bit lane in _mm_set_epi32 order */

KC_AVX512VL static inline __m128i kc_fold_x(__m128i x, __m128i k, __m128i next) {
    return _mm_ternarylogic_epi64(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11), next, 0x96);
}
KC_AVX512VL static inline __m128i kc_load_x(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
KC_SSE42 static inline uint32_t kc_reduce_x(__m128i x) {
    return kc_x86_crc64(kc_x86_crc64(0, (uint64_t)_mm_cvtsi128_si64(x)), (uint64_t)_mm_extract_epi64(x, 1));
}

/* A block of k steps: 64*k bytes for the vectors, then three scalar streams of 24*k bytes. */
KC_AVX512VL static uint32_t kc_crc_avx512vl(uint32_t c, const uint8_t *p, size_t n) {
    while (n >= 4 * 136) {
        size_t k = n / 136 < KC_CRC_MAX_STREAM ? n / 136 : KC_CRC_MAX_STREAM, length = 24 * k;
        const __m128i far = _mm_set_epi32(KC_FOLD_LANE(kc_fold_512)), near = _mm_set_epi32(KC_FOLD_LANE(kc_fold_128));
        const uint8_t *v = p, *s = p + 64 * k, *stop = s + length - 24;
        uint32_t s0 = 0, s1 = 0, s2 = 0;
        __m128i x0 = _mm_xor_si128(kc_load_x(v), _mm_cvtsi32_si128((int)c)), x1 = kc_load_x(v + 16);
        __m128i x2 = kc_load_x(v + 32), x3 = kc_load_x(v + 48);
        for (; s != stop; s += 24) {
            v += 64;
            x0 = kc_fold_x(x0, far, kc_load_x(v));
            x1 = kc_fold_x(x1, far, kc_load_x(v + 16));
            x2 = kc_fold_x(x2, far, kc_load_x(v + 32));
            x3 = kc_fold_x(x3, far, kc_load_x(v + 48));
            KC_SCALAR_STEP(s);
        }
        KC_SCALAR_STEP(s);
        x3 = kc_fold_x(kc_fold_x(kc_fold_x(x0, near, x1), near, x2), near, x3);
        c = kc_x86_join(kc_reduce_x(x3), kc_crc_shift[3 * k]) ^ kc_x86_join(s0, kc_crc_shift[2 * k])
          ^ kc_x86_join(s1, kc_crc_shift[k]) ^ s2;
        p += 136 * k;
        n -= 136 * k;
    }
    return kc_crc_sse42(c, p, n);
}

KC_VPCLMUL static inline __m512i kc_fold_z(__m512i x, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next, 0x96);
}
KC_VPCLMUL static inline __m512i kc_load_z(const uint8_t *p) { return _mm512_loadu_si512((const void *)p); }
KC_VPCLMUL static inline __m512i kc_lanes_z(__m128i k) { return _mm512_broadcast_i32x4(k); }
KC_VPCLMUL static inline uint32_t kc_reduce_z(__m512i x) {
    /* the first three 16-byte lanes move onto the last one, which stays as it is */
    __m512i k = _mm512_set_epi32(0, 0, 0, 0, KC_FOLD_LANE(kc_fold_128), KC_FOLD_LANE(kc_fold_256), KC_FOLD_LANE(kc_fold_384));
    __m512i f = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11));
    __m128i r = _mm_ternarylogic_epi64(_mm512_castsi512_si128(f), _mm512_extracti32x4_epi32(f, 1), _mm512_extracti32x4_epi32(f, 2), 0x96);
    return kc_reduce_x(_mm_xor_si128(r, _mm512_extracti32x4_epi32(x, 3)));
}

/* A block of k steps: 256*k bytes for the vectors, then three scalar streams of 24*k bytes. */
KC_VPCLMUL static uint32_t kc_crc_vpclmul(uint32_t c, const uint8_t *p, size_t n) {
    const __m512i near = kc_lanes_z(_mm_set_epi32(KC_FOLD_LANE(kc_fold_512)));
    while (n >= 2 * 328) {
        size_t k = n / 328 < KC_CRC_MAX_STREAM ? n / 328 : KC_CRC_MAX_STREAM, length = 24 * k;
        const __m512i far = kc_lanes_z(_mm_set_epi32(KC_FOLD_LANE(kc_fold_2048)));
        const uint8_t *v = p, *s = p + 256 * k, *stop = s + length - 24;
        uint32_t s0 = 0, s1 = 0, s2 = 0;
        __m512i x0 = _mm512_xor_si512(kc_load_z(v), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
        __m512i x1 = kc_load_z(v + 64), x2 = kc_load_z(v + 128), x3 = kc_load_z(v + 192);
        for (; s != stop; s += 24) {
            v += 256;
            x0 = kc_fold_z(x0, far, kc_load_z(v));
            x1 = kc_fold_z(x1, far, kc_load_z(v + 64));
            x2 = kc_fold_z(x2, far, kc_load_z(v + 128));
            x3 = kc_fold_z(x3, far, kc_load_z(v + 192));
            KC_SCALAR_STEP(s);
        }
        KC_SCALAR_STEP(s);
        x3 = kc_fold_z(kc_fold_z(kc_fold_z(x0, near, x1), near, x2), near, x3);
        c = kc_x86_join(kc_reduce_z(x3), kc_crc_shift[3 * k]) ^ kc_x86_join(s0, kc_crc_shift[2 * k])
          ^ kc_x86_join(s1, kc_crc_shift[k]) ^ s2;
        p += 328 * k;
        n -= 328 * k;
    }
    if (n >= 256) {
        __m512i x = _mm512_xor_si512(kc_load_z(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) x = kc_fold_z(x, near, kc_load_z(p));
        return kc_crc_sse42_one(kc_reduce_z(x), p, n);
    }
    return kc_crc_sse42(c, p, n);
}

static void kc_fold_constants(uint32_t k[2], unsigned distance_bits) {
    k[0] = kc_crc_x_to_the(distance_bits + 31);
    k[1] = kc_crc_x_to_the(distance_bits - 33);
}
/* By cpuid and not __builtin_cpu_supports: the latter needs libgcc's or compiler-rt's tables, which zig does not bring. */
static int kc_x86_level(void) {
    unsigned a, b, c, d, xcr0 = 0, xcr0_high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 20)) || !(c & (1u << 1))) return 0;     /* SSE4.2, PCLMULQDQ */
    if (!(c & (1u << 27))) return 1;                                                            /* OSXSAVE */
    __asm__("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
    if ((xcr0 & 0xE6) != 0xE6) return 1;                                                        /* the system saves zmm and masks */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & (1u << 16)) || !(b & (1u << 31))) return 1;   /* AVX-512F, VL */
    return c & (1u << 10) ? 3 : 2;                                                              /* VPCLMULQDQ */
}
#endif

#if KC_CRC_ARM
#if defined(__clang__)
#define KC_ARMV8 __attribute__((target("crc,aes")))
#else
#define KC_ARMV8 __attribute__((target("+crc+crypto")))
#endif
KC_ARMV8 static inline uint32_t kc_arm_join(uint32_t a, uint32_t b) {
    poly128_t r = vmull_p64((poly64_t)a, (poly64_t)b);
    return __crc32cd(0, (uint64_t)vgetq_lane_u64(vreinterpretq_u64_p128(r), 0));
}
KC_CRC_DEFINE_SCALAR(KC_ARMV8, __crc32cd, __crc32cw, __crc32ch, __crc32cb, kc_arm_join, kc_crc_armv8_one, kc_crc_armv8)

static int kc_arm_has_crc_and_pmull(void) {
#if defined(__APPLE__)
    return 1;                                           /* every 64-bit Mac */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 7)) && (getauxval(AT_HWCAP) & (1ul << 4));    /* HWCAP_CRC32, HWCAP_PMULL */
#else
    return 0;
#endif
}
#endif

struct kc_crc_kernel { const char *name; kc_crc_fn fn; };
static struct kc_crc_kernel kc_crc_kernels[5];          /* what this processor can run, fastest first */
static int kc_crc_kernel_count;
static kc_crc_fn kc_crc_best;

static void kc_crc_offer(const char *name, kc_crc_fn fn) {
    kc_crc_kernels[kc_crc_kernel_count].name = name;
    kc_crc_kernels[kc_crc_kernel_count++].fn = fn;
}
/* Once, when the extension is loaded. */
static void kc_crc32c_init(void) {
    if (kc_crc_best) return;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = (c >> 1) ^ (KC_CRC_POLY & (0u - (c & 1)));
        kc_crc_table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            kc_crc_table[t][i] = (kc_crc_table[t - 1][i] >> 8) ^ kc_crc_table[0][kc_crc_table[t - 1][i] & 255];
    kc_crc_power[0] = 0x40000000u;                      /* x^1 */
    for (int i = 1; i < 40; i++) kc_crc_power[i] = kc_crc_multiply(kc_crc_power[i - 1], kc_crc_power[i - 1]);
    for (int j = 1; j <= 3 * KC_CRC_MAX_STREAM; j++) kc_crc_shift[j] = kc_crc_x_to_the(8 * 24 * (uint64_t)j - 33);
#if KC_CRC_X86
    kc_fold_constants(kc_fold_128, 128);
    kc_fold_constants(kc_fold_256, 256);
    kc_fold_constants(kc_fold_384, 384);
    kc_fold_constants(kc_fold_512, 512);
    kc_fold_constants(kc_fold_2048, 2048);
    int level = kc_x86_level();
    if (level >= 3) kc_crc_offer("vpclmul", kc_crc_vpclmul);
    if (level >= 2) kc_crc_offer("avx512vl", kc_crc_avx512vl);
    if (level >= 1) kc_crc_offer("sse42", kc_crc_sse42);
#endif
#if KC_CRC_ARM
    if (kc_arm_has_crc_and_pmull()) kc_crc_offer("armv8", kc_crc_armv8);
#endif
    kc_crc_offer("tables", kc_crc_tables);
    kc_crc_best = kc_crc_kernels[0].fn;
}

/* The finished CRC-32C of p, continued from a finished crc (0 to start). */
static inline uint32_t kc_crc32c(uint32_t crc, const uint8_t *p, size_t n) { return ~kc_crc_best(~crc, p, n); }
#endif
