/* Record batch v2: the loops that run once per record. Layout: see wire.h.
 *
 * Writers never stop inside a record: a record that does not fit leaves everything as it was. They may store up to
 * KC_SLACK bytes past the last record (wide stores), so every buffer has that much room behind its limit.
 * Readers take (position, end), check every length against what is left, and report what is wrong as a code.
 */
#ifndef KAFKACORE_BATCH_H
#define KAFKACORE_BATCH_H
#include "columns.h"
#include "crc32c.h"
#include "wire.h"

enum { KC_SLACK = 64, KC_MIN_RECORD = 7 };     /* smallest record: length, attributes, two deltas, key, value, header count */
#define KC_INLINE static inline __attribute__((always_inline))

/* ---- writing ---- */

/* Writes the header over p[0..61) and the CRC of what follows; base offset 0, leader epoch -1 (both outside the CRC). */
static void kc_seal_batch(uint8_t *p, size_t total, int16_t attributes, int32_t last_offset_delta, int64_t base_ts, int64_t max_ts,
                          int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, int32_t count) {
    kc_put64(p, 0);
    kc_put32(p + 8, (int32_t)(total - 12));
    kc_put32(p + 12, -1);
    p[16] = 2;
    kc_put16(p + 21, attributes);
    kc_put32(p + 23, last_offset_delta);
    kc_put64(p + 27, base_ts);
    kc_put64(p + 35, max_ts);
    kc_put64(p + 43, producer_id);
    kc_put16(p + 51, producer_epoch);
    kc_put32(p + 53, base_sequence);
    kc_put32(p + 57, count);
    kc_put32(p + 17, (int32_t)kc_crc32c(0, p + 21, total - 21));
}

/* Copies n bytes, up to 512 of them in place: a call of memcpy costs more than 100 bytes do. Where the source goes on to from_end
 * the copy overshoots (32-byte steps were no faster with AVX2); where it does not, the last step overlaps the one before. */
KC_INLINE void kc_copy(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *from_end) {
    if (n > 512) memcpy(to, from, (size_t)n);
    else if (from_end - from >= n + 31) for (int64_t i = 0; i < n; i += 32) memcpy(to + i, from + i, 32);
    else if (n >= 16) {
        for (int64_t i = 0; i < n - 16; i += 16) memcpy(to + i, from + i, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    } else if (n > 0) memcpy(to, from, (size_t)n);       /* from may be NULL where there is nothing */
}

/* A varint of up to 2 bytes without a branch; z is zig-zagged and below 1 << 14. Stores 2 bytes. */
KC_INLINE uint8_t *kc_put_short(uint8_t *p, uint32_t z) {
    uint32_t two = z >= 0x80;
    uint16_t w = (uint16_t)((z & 0x7f) | (two << 7) | ((z >> 7) << 8));
    memcpy(p, &w, 2);
    return p + 1 + two;
}
KC_INLINE uint8_t *kc_put_length(uint8_t *p, int64_t n) {
    uint64_t z = kc_zigzag(n);
    return __builtin_expect(z < (1 << 14), 1) ? kc_put_short(p, (uint32_t)z) : kc_put_uvarint(p, z);
}

typedef struct {
    uint8_t *p, *limit;            /* next byte to write; end of the room (KC_SLACK more is writable) */
    int32_t count, next_delta;     /* records so far; offset delta of the next one */
    int64_t base_ts, max_ts;       /* set by the first record */
} kc_batch_writer;

/* Writes one record; headers are encoded with their count, or NULL for none. key_end and value_end tell how far the memory
 * behind key and value is readable. 1 written, 0 no room. */
KC_INLINE int kc_write_record(kc_batch_writer *w, int64_t ts, const uint8_t *key, int64_t key_len, const uint8_t *key_end,
                              const uint8_t *value, int64_t value_len, const uint8_t *value_end,
                              const uint8_t *headers, size_t headers_len) {
    uint64_t ts_z = kc_zigzag((int64_t)((uint64_t)ts - (uint64_t)w->base_ts));
    size_t body = 1 + (headers ? headers_len : 1) + kc_uvarint_size(ts_z) + kc_varint_size(w->next_delta) + kc_varint_size(key_len) + kc_varint_size(value_len)
                + (key_len > 0 ? (size_t)key_len : 0) + (value_len > 0 ? (size_t)value_len : 0);
    if (body + kc_varint_size((int64_t)body) > (size_t)(w->limit - w->p)) return 0;
    uint8_t *p = kc_put_length(w->p, (int64_t)body);
    *p++ = 0;
    p = kc_put_uvarint(p, ts_z);
    p = kc_put_length(p, w->next_delta);
    p = kc_put_length(p, key_len);
    if (key_len > 0) { kc_copy(p, key, key_len, key_end); p += key_len; }
    p = kc_put_length(p, value_len);
    if (value_len > 0) { kc_copy(p, value, value_len, value_end); p += value_len; }
    if (headers) { memcpy(p, headers, headers_len); p += headers_len; } else *p++ = 0;
    w->p = p;
    w->count++;
    w->next_delta++;
    if (ts > w->max_ts) w->max_ts = ts;
    return 1;
}

/* Size of one record with its length varint; headers_size counts the encoded headers with their count. */
static inline size_t kc_record_size(int64_t ts_delta, int32_t offset_delta, int64_t key_len, int64_t value_len, size_t headers_size) {
    size_t body = kc_record_body_size(ts_delta, offset_delta, key_len, value_len, headers_size);
    return body + kc_varint_size((int64_t)body);
}

KC_INLINE const uint8_t *kc_column_end(const kc_column *c, const uint8_t *p, int64_t n) {
    /* how far past item p may be read: known only where one block holds all items */
    if (c->kind == KC_COL_OFFSETS32 || c->kind == KC_COL_OFFSETS64) return c->data + c->limit;
    return p + (n > 0 ? n : 0);
}

/* Appends items [first, last) until there is no room or an item is bad (then *bad = 1). Returns the next item to append. */
KC_INLINE int64_t kc_write_run(kc_batch_writer *out, const kc_column *values, const kc_column *keys, const int64_t *ts, int64_t one_ts,
                               int64_t first, int64_t last, int *bad) {
    kc_batch_writer w = *out;
    int64_t i, n, key_n = -1;
    const uint8_t *p, *key = NULL;
    for (i = first; i < last; i++) {
        if (kc_column_get(values, i, &p, &n) || (keys && kc_column_get(keys, i, &key, &key_n))) { *bad = 1; break; }
        if (!kc_write_record(&w, ts ? ts[i] : one_ts, key, key_n, keys ? kc_column_end(keys, key, key_n) : NULL,
                             p, n, kc_column_end(values, p, n), NULL, 0)) break;
    }
    *out = w;
    return i;
}

/* Up to two bytes of varint in a register, and one more in *size if there are two. */
KC_INLINE uint64_t kc_short_bits(uint32_t z, int *size) {
    uint32_t two = z >= 0x80;
    *size += 1 + (int)two;
    return (z & 0x7f) | (two << 7) | ((z >> 7) << 8);
}
KC_INLINE void kc_put_bits(uint8_t *p, uint64_t bits) {
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    bits = __builtin_bswap64(bits);
#endif
    memcpy(p, &bits, 8);
}

/* What surrounds a value without key and headers, in two registers: its first bytes but for the length, and what follows. */
typedef struct { uint64_t head, rest; int head_size, delta_size, rest_size; int64_t size; } kc_frame;

KC_INLINE kc_frame kc_frame_of(uint64_t shared, int64_t ts_size, uint32_t delta, int64_t n) {
    kc_frame f = {0, 0, 0, 0, 0, 0};
    int64_t body = 5 + ts_size + (delta >= 1 << 6) + (n >= 64) + n;
    f.head = kc_short_bits((uint32_t)body << 1, &f.head_size);
    f.size = f.head_size + body;
    f.head |= shared << (8 * f.head_size);                /* at most 2 + 1 + 5 bytes */
    f.head_size += 1 + (int)ts_size;
    f.rest = kc_short_bits(delta << 1, &f.delta_size);    /* at most 2 + 1 + 2 */
    f.rest_size = f.delta_size + 1;
    f.rest |= (uint64_t)1 << (8 * f.delta_size);          /* null key */
    f.rest |= kc_short_bits((uint32_t)n << 1, &f.rest_size) << (8 * f.delta_size + 8);
    return f;
}

KC_INLINE uint8_t *kc_put_framed(uint8_t *p, const kc_frame *f, const uint8_t *value, int64_t n, const uint8_t *value_end) {
    kc_put_bits(p, f->head);
    p += f->head_size;
    kc_put_bits(p, f->rest);
    p += f->rest_size;
    kc_copy(p, value, n, value_end);
    p[n] = 0;                                             /* no headers */
    return p + n + 1;
}

/* A run of values that all have the length of the first, of n bytes: their frames differ by the offset delta only. Returns the item after the
 * last, whose first byte is at *first then. */
static __attribute__((noinline)) int64_t kc_write_alike(uint8_t **at, const uint8_t *end, const uint8_t *data, int64_t limit, const void *offsets,
                                                        int wide, uint64_t shared, int64_t ts_size, uint32_t delta, int64_t i, int64_t last,
                                                        int64_t *first, int64_t n) {
    int64_t from = *first;
    kc_frame f = kc_frame_of(shared, ts_size, delta, n);
    int64_t stop = i + (end - *at) / f.size, next_size = delta < 1 << 6 ? 1 << 6 : 1 << 13;
    uint64_t others = f.rest >> (8 * f.delta_size) << (8 * f.delta_size);
    uint8_t *p = *at;
    if (stop > last) stop = last;
    if (stop - i > next_size - (int64_t)delta) stop = i + next_size - (int64_t)delta;
    for (; i < stop && kc_offset_at(offsets, i + 1, wide) == from + n && from + n <= limit; i++, from += n, delta++) {
        f.rest = others | (f.delta_size == 1 ? delta << 1 : ((delta << 1) & 0x7f) | 0x80 | delta >> 6 << 8);
        p = kc_put_framed(p, &f, data + from, n, data + limit);
    }
    *at = p;
    *first = from;
    return i;
}

/* The commonest run: values behind offsets, nothing null, no keys, one timestamp. What surrounds a value is put together without a branch:
 * neither the lengths of texts nor how many bytes those take can be foreseen. (Put together in memory, the words that are stored would wait
 * for their bytes, longer than all the rest takes.) Where four neighbours are of one length, most likely all are. */
KC_INLINE int64_t kc_write_values(kc_batch_writer *out, const uint8_t *data, int64_t limit, const void *offsets, int wide, int64_t ts,
                                  int64_t first, int64_t last, int *bad) {
    uint8_t *p = out->p, *const end = out->limit, bytes[16] = {0};
    uint32_t delta = (uint32_t)out->next_delta;
    int64_t i = first, from = kc_offset_at(offsets, first, wide), to;
    int64_t ts_size = kc_put_uvarint(bytes, kc_zigzag((int64_t)((uint64_t)ts - (uint64_t)out->base_ts))) - bytes;
    uint64_t shared = 0;                                  /* attributes, which are 0, and the timestamp's delta */
    if (ts_size > 5) return first;                        /* the general loop takes it */
    for (int j = 0; j < ts_size; j++) shared |= (uint64_t)bytes[j] << (8 + 8 * j);
    if (from < 0) { *bad = 1; return first; }
    for (int64_t looked = i; i < last; i++) {
        to = kc_offset_at(offsets, i + 1, wide);
        if (to < from || to > limit) { *bad = 1; break; }
        int64_t n = to - from;
        if (n >= 8150 || delta >= 1 << 13) break;         /* a length or delta of three bytes: the general loop */
        if (i >= looked) {
            looked = i + 16;
            if (last - i > 4 && ((kc_offset_at(offsets, i + 2, wide) ^ (to + n)) | (kc_offset_at(offsets, i + 3, wide) ^ (to + 2 * n)) |
                                 (kc_offset_at(offsets, i + 4, wide) ^ (to + 3 * n))) == 0) {
                int64_t next = kc_write_alike(&p, end, data, limit, offsets, wide, shared, ts_size, delta, i, last, &from, n);
                if (next > i) {
                    delta += (uint32_t)(next - i);
                    looked = next;
                    i = next - 1;
                    continue;
                }
            }
        }
        kc_frame f = kc_frame_of(shared, ts_size, delta, n);
        if (end - p < f.size) break;
        p = kc_put_framed(p, &f, data + from, n, data + limit);
        delta++;
        from = to;
    }
    if (i > first && ts > out->max_ts) out->max_ts = ts;
    out->p = p;
    out->count += (int32_t)(i - first);
    out->next_delta = (int32_t)delta;
    return i;
}

static int64_t kc_append_columns(kc_batch_writer *w, const kc_column *values, const kc_column *keys, const int64_t *ts, int64_t one_ts,
                                 int64_t first, int64_t last, int *bad) {
    int nulls = values->validity != NULL;
    if (first >= last) return first;
    if (!keys && !ts && !nulls && values->kind == KC_COL_OFFSETS32)
        first = kc_write_values(w, values->data, values->limit, values->offsets, 0, one_ts, first, last, bad);
    else if (!keys && !ts && !nulls && values->kind == KC_COL_OFFSETS64)
        first = kc_write_values(w, values->data, values->limit, values->offsets, 1, one_ts, first, last, bad);
    return *bad ? first : kc_write_run(w, values, keys, ts, one_ts, first, last, bad);
}

/* ---- reading ---- */

enum {
    KC_RECORD_OK, KC_RECORD_TRUNCATED, KC_RECORD_LENGTH, KC_RECORD_KEY, KC_RECORD_VALUE, KC_RECORD_HEADERS, KC_RECORD_TRAILING
};

typedef struct {
    int64_t ts_delta;
    int32_t offset_delta, key_len, value_len;    /* -1: null */
    const uint8_t *key, *value, *headers;        /* headers: at their count, NULL when there is none */
} kc_record;

typedef struct {
    const uint8_t *key, *value;
    int32_t key_len, value_len;                  /* value_len -1: null */
} kc_header;

typedef struct { int64_t count, key_bytes, value_bytes; } kc_header_sizes;

/* The number of headers at p and what follows it, or NULL. */
static const uint8_t *kc_header_count(const uint8_t *p, const uint8_t *end, int64_t *count) {
    p = kc_get_varint(p, end, KC_MAX_VARINT, count);
    return p && *count >= 0 && *count <= (end - p) / 2 ? p : NULL;
}

/* Reads a header; returns what follows it, or NULL when it leaves the memory. */
static const uint8_t *kc_get_header(const uint8_t *p, const uint8_t *end, kc_header *h) {
    int64_t n;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &n)) || n < 0 || n > end - p) return NULL;
    h->key = p;
    h->key_len = (int32_t)n;
    if (!(p = kc_get_varint(p + n, end, KC_MAX_VARINT, &n)) || n < -1 || n > end - p) return NULL;
    h->value = p;
    h->value_len = (int32_t)n;
    return n > 0 ? p + n : p;
}

KC_INLINE int kc_is_ascii(const uint8_t *p, int32_t n) {
    uint8_t any = 0;
    while (n-- > 0) any |= *p++;
    return any < 0x80;
}

/* Adds up the headers at p, whose count precedes them; false when they leave the memory. A key that is not ASCII may grow threefold: each
 * of its bytes may be replaced by U+FFFD. */
static int kc_measure_headers(const uint8_t *p, const uint8_t *end, kc_header_sizes *sizes) {
    int64_t count;
    kc_header h;
    if (!(p = kc_header_count(p, end, &count))) return 0;
    sizes->count += count;
    while (count-- > 0) {
        if (!(p = kc_get_header(p, end, &h))) return 0;
        sizes->key_bytes += kc_is_ascii(h.key, h.key_len) ? h.key_len : 3 * (int64_t)h.key_len;
        if (h.value_len > 0) sizes->value_bytes += h.value_len;
    }
    return 1;
}

/* Checks count headers at p; they must end at end exactly. */
static int kc_check_headers(const uint8_t *p, const uint8_t *end, int64_t count) {
    kc_header h;
    if (count < 0 || count > (end - p) / 2) return KC_RECORD_HEADERS;
    while (count-- > 0)
        if (!(p = kc_get_header(p, end, &h))) return KC_RECORD_HEADERS;
    return p == end ? KC_RECORD_OK : KC_RECORD_LENGTH;
}

static __attribute__((noinline)) int kc_read_record_slow(const uint8_t **at, const uint8_t *end, kc_record *r) {
    const uint8_t *p = *at;
    int64_t n, delta, headers;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &n))) return KC_RECORD_TRUNCATED;
    if (n < KC_MIN_RECORD - 1 || n > end - p) return KC_RECORD_LENGTH;
    end = p + n;
    p++;                                                  /* attributes: unused */
    if (!(p = kc_get_varint(p, end, KC_MAX_VARLONG, &r->ts_delta))) return KC_RECORD_TRUNCATED;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &delta))) return KC_RECORD_TRUNCATED;
    r->offset_delta = (int32_t)delta;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &n)) || n < -1 || n > end - p) return KC_RECORD_KEY;
    r->key = p;
    r->key_len = (int32_t)n;
    if (n > 0) p += n;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &n)) || n < -1 || n > end - p) return KC_RECORD_VALUE;
    r->value = p;
    r->value_len = (int32_t)n;
    if (n > 0) p += n;
    r->headers = p;
    if (!(p = kc_get_varint(p, end, KC_MAX_VARINT, &headers))) return KC_RECORD_HEADERS;
    if (headers == 0) {
        r->headers = NULL;
        if (p != end) return KC_RECORD_LENGTH;
    } else {
        int bad = kc_check_headers(p, end, headers);
        if (bad) return bad;
    }
    *at = end;
    return KC_RECORD_OK;
}

/* Two bytes at most, or 0 bytes when it is longer (z undefined). */
KC_INLINE int kc_short_varint(const uint8_t *p, uint32_t *z) {
    uint32_t b = p[0];
    if (b < 0x80) { *z = b; return 1; }
    uint32_t c = p[1];
    *z = (b & 0x7f) | (c << 7);
    return c < 0x80 ? 2 : 0;
}

/* Reads the record at *at and moves *at behind it. The fast path takes one or two byte varints (three for the timestamp), far
 * enough from the end that its fixed parts need no checks; everything else, wrong or only rare, goes to the slow one. */
KC_INLINE int kc_read_record(const uint8_t **at, const uint8_t *end, kc_record *r) {
    const uint8_t *p = *at, *stop;
    uint32_t z, size, n;
    if (__builtin_expect(end - p < 24, 0)) goto slow;
    if (!(n = kc_short_varint(p, &z)) || (z & 1)) goto slow;
    size = z >> 1;
    p += n;
    if (size < KC_MIN_RECORD - 1 || size > end - p) goto slow;
    stop = p + size;
    p++;
    if (!(n = kc_short_varint(p, &z))) {
        z = (z & 0x3fff) | ((uint32_t)p[2] << 14);
        if (p[2] >= 0x80) goto slow;
        n = 3;
    }
    p += n;
    r->ts_delta = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
    if (!(n = kc_short_varint(p, &z))) goto slow;
    p += n;
    r->offset_delta = (int32_t)(z >> 1) ^ -(int32_t)(z & 1);
    if (*p == 1) {
        r->key_len = -1;
        r->key = ++p;
    } else {
        if (!(n = kc_short_varint(p, &z)) || (z & 1)) goto slow;
        p += n;
        r->key_len = (int32_t)(z >> 1);
        r->key = p;
        if (r->key_len > stop - p - 2) goto slow;         /* a value length and a header count must follow */
        p += r->key_len;
    }
    if (stop - p < 3) goto slow;
    if (!(n = kc_short_varint(p, &z)) || (z & 1)) goto slow;
    p += n;
    r->value_len = (int32_t)(z >> 1);
    r->value = p;
    if (r->value_len + 1 != stop - p || p[r->value_len] != 0) goto slow;
    r->headers = NULL;
    *at = stop;
    return KC_RECORD_OK;
slow:
    return kc_read_record_slow(at, end, r);
}

/* Where a column reader puts its rows. starts are offsets from base; lengths are -1 for null; header start is -1 for none. */
typedef struct {
    int64_t *offsets, *timestamps;
    int32_t *key_starts, *key_lengths, *value_starts, *value_lengths, *header_starts;
} kc_rows;

typedef struct {
    const uint8_t *p, *end;        /* next record; end of the records */
    int32_t left;                  /* records not read yet, as the header counts them */
    int64_t base_offset, base_ts;
    int log_append_time;           /* all records have base_ts */
} kc_batch_reader;

KC_INLINE int64_t kc_wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Reads up to max_rows records with offset >= start into rows[row...]; returns the next row. *error tells why it stopped early. */
static int64_t kc_read_columns(kc_batch_reader *b, const uint8_t *base, int64_t start, const kc_rows *rows, int64_t row, int64_t max_rows,
                               int *error) {
    const uint8_t *p = b->p;
    int32_t left = b->left;
    int64_t top = row + max_rows;
    kc_record r;
    *error = KC_RECORD_OK;
    while (left > 0 && row < top) {
        if ((*error = kc_read_record(&p, b->end, &r))) break;
        left--;
        int64_t offset = kc_wrap_add(b->base_offset, r.offset_delta);
        rows->offsets[row] = offset;
        rows->timestamps[row] = b->log_append_time ? b->base_ts : kc_wrap_add(b->base_ts, r.ts_delta);
        rows->key_starts[row] = (int32_t)(r.key - base);
        rows->key_lengths[row] = r.key_len;
        rows->value_starts[row] = (int32_t)(r.value - base);
        rows->value_lengths[row] = r.value_len;
        rows->header_starts[row] = r.headers ? (int32_t)(r.headers - base) : -1;
        row += offset >= start;                           /* a row before start is overwritten by the next */
    }
    if (!*error && left == 0 && p != b->end) *error = KC_RECORD_TRAILING;
    b->p = p;
    b->left = left;
    return row;
}

typedef struct {
    int64_t largest_ts, smallest_ts;
    int in_sequence;                                      /* the offsets count up by one from the first */
    int null_key;
} kc_record_facts;

/* Walks over all records without keeping anything. *error tells why it stopped early. */
static void kc_scan_records(kc_batch_reader *b, kc_record_facts *facts, int *error) {
    const uint8_t *p = b->p;
    int64_t largest = INT64_MIN, smallest = INT64_MAX;
    int in_sequence = 1, null_key = 0;
    kc_record r;
    *error = KC_RECORD_OK;
    for (int32_t n = 0; n < b->left; n++) {
        if ((*error = kc_read_record(&p, b->end, &r))) break;
        int64_t ts = b->log_append_time ? b->base_ts : kc_wrap_add(b->base_ts, r.ts_delta);
        largest = ts > largest ? ts : largest;
        smallest = ts < smallest ? ts : smallest;
        in_sequence &= r.offset_delta == n;
        null_key |= r.key_len < 0;
    }
    if (!*error && p != b->end) *error = KC_RECORD_TRAILING;
    facts->largest_ts = largest;
    facts->smallest_ts = smallest;
    facts->in_sequence = in_sequence;
    facts->null_key = null_key;
}

/* Copies ranges behind each other to *to and notes where each ends, counted from first. */
static void kc_gather(uint8_t **to, const uint8_t *base, const uint8_t *base_end, const int32_t *starts, const int32_t *lengths, int64_t n,
                      const uint8_t *first, int32_t *ends) {
    uint8_t *p = *to;
    for (int64_t i = 0; i < n; i++) {
        if (lengths[i] > 0) { kc_copy(p, base + starts[i], lengths[i], base_end); p += lengths[i]; }
        ends[i] = (int32_t)(p - first);
    }
    *to = p;
}
#endif
