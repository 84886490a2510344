/* nullbroker: a Kafka broker that costs almost nothing, so the client is the bottleneck.
 *   Produce  record data is dropped inside the kernel (recv MSG_TRUNC); --verify reads it and checks every CRC32C
 *   Fetch    serves DIR/<topic>.batch (one v2 batch, any codec) again and again, only the base offset is patched
 *   others   DIR/KEY-VERSION.answer is the body that every request of that API is answered with; no version but that is offered
 * usage: nullbroker PORT PARTITIONS DIR HIGH_WATERMARK [--verify]
 * SIGUSR1 prints one JSON line: requests, batches, records, bytes, cpu seconds, answers out of files by API so far.  Thread per connection. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <unistd.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <dirent.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/resource.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include "../kafkacore/native/crc32c.h"
static int port, nparts, verify; static const char *dir; static int64_t hw;
static atomic_llong st_req, st_batch, st_rec, st_bytes, st_fetch, st_bad, next_off[4096];
typedef struct { int fd; uint8_t in[8192]; size_t pos, len; int64_t left; int dead; } R;     /* reader, bounded by the request */
static int fill(R *r) {
    ssize_t n = recv(r->fd, r->in, sizeof r->in, 0);
    if (n <= 0) { r->dead = 1; return -1; }
    r->pos = 0; r->len = n; return 0;
}
static void get(R *r, void *o, size_t n) {
    uint8_t *p = o; r->left -= n;
    while (n) {
        if (r->dead || (r->pos == r->len && fill(r))) { memset(p, 0, n); return; }
        size_t k = r->len - r->pos; if (k > n) k = n;
        if (p) { memcpy(p, r->in + r->pos, k); p += k; }
        r->pos += k; n -= k;
    }
}
static void skip(R *r, size_t n) {
    size_t k = r->len - r->pos; if (k > n) k = n;
    r->pos += k; r->left -= n; n -= k;
    while (n && !r->dead) { ssize_t g = recv(r->fd, NULL, n, MSG_TRUNC); if (g <= 0) { r->dead = 1; return; } n -= g; }
}
static int64_t i64(R *r) { uint64_t v; get(r, &v, 8); return (int64_t)__builtin_bswap64(v); }
static int32_t i32(R *r) { uint32_t v; get(r, &v, 4); return (int32_t)__builtin_bswap32(v); }
static int16_t i16(R *r) { uint16_t v; get(r, &v, 2); return (int16_t)__builtin_bswap16(v); }
static int8_t i8(R *r) { int8_t v; get(r, &v, 1); return v; }
static int str(R *r, char *o, int cap) { int n = i16(r); if (n < 0) { *o = 0; return -1; } if (n >= cap) { r->dead = 1; return 0; } get(r, o, n); o[n] = 0; return n; }
typedef struct { uint8_t b[8 << 20]; size_t n; } W;       /* metadata of 10,000 partitions takes 300 kB; what is not used is never touched */
static void wb(W *w, const void *p, size_t n) { if (w->n + n <= sizeof w->b) { memcpy(w->b + w->n, p, n); w->n += n; } }
static void w64(W *w, int64_t v) { uint64_t u = __builtin_bswap64(v); wb(w, &u, 8); }
static void w32(W *w, int32_t v) { uint32_t u = __builtin_bswap32(v); wb(w, &u, 4); }
static void w16(W *w, int16_t v) { uint16_t u = __builtin_bswap16(v); wb(w, &u, 2); }
static void w8(W *w, int v) { uint8_t u = v; wb(w, &u, 1); }
static void wstr(W *w, const char *s) { if (!s) { w16(w, -1); return; } w16(w, strlen(s)); wb(w, s, strlen(s)); }
static int sendall(int fd, struct iovec *v, int n) {
    while (n) {
        struct msghdr m = {.msg_iov = v, .msg_iovlen = n > 512 ? 512 : n};
        ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL); if (k <= 0) return -1;
        while (n && (size_t)k >= v->iov_len) { k -= v->iov_len; v++; n--; }
        if (n) { v->iov_base = (char*)v->iov_base + k; v->iov_len -= k; }
    }
    return 0;
}
enum { BUILT_IN = 7, MAX_API = 32 };
static struct { int16_t k, lo, hi; uint8_t *answer; size_t n; atomic_llong count; } API[MAX_API] = {{0,3,7},{1,4,11},{2,1,2},{3,1,5},{10,0,1},{18,0,3},{22,0,1}};
static int NAPI = BUILT_IN;
static int load_answers(void) {
    DIR *d = opendir(dir); struct dirent *e; int key, ver, end;
    while (d && (e = readdir(d))) {
        end = 0; if (sscanf(e->d_name, "%d-%d.answer%n", &key, &ver, &end) != 2 || !end || e->d_name[end]) continue;
        char path[800]; snprintf(path, sizeof path, "%s/%s", dir, e->d_name); FILE *f = fopen(path, "rb");
        if (!f || NAPI == MAX_API) return -1;
        API[NAPI].k = key; API[NAPI].lo = API[NAPI].hi = ver; API[NAPI].answer = malloc(1 << 20); API[NAPI].n = fread(API[NAPI].answer, 1, 1 << 20, f);
        fclose(f); NAPI++;
    }
    if (d) closedir(d);
    return 0;
}
static void h_versions(W *w, int ver) {
    w16(w, ver > 3 ? 35 : 0); if (ver > 3) ver = 0;
    if (ver >= 3) w8(w, NAPI + 1); else w32(w, NAPI);
    for (int i = 0; i < NAPI; i++) { w16(w, API[i].k); w16(w, API[i].lo); w16(w, API[i].hi); if (ver >= 3) w8(w, 0); }
    if (ver >= 1) w32(w, 0);
    if (ver >= 3) w8(w, 0);
}
static void h_metadata(R *r, W *w, int ver) {
    if (ver >= 3) w32(w, 0);
    w32(w, 1); w32(w, 1); wstr(w, "127.0.0.1"); w32(w, port); wstr(w, NULL);
    if (ver >= 2) wstr(w, "nullbroker");
    w32(w, 1);
    int n = i32(r); w32(w, n < 0 ? 0 : n); char t[300];
    for (int i = 0; i < n && !r->dead; i++) {
        str(r, t, sizeof t); w16(w, 0); wstr(w, t); w8(w, 0); w32(w, nparts);
        for (int p = 0; p < nparts; p++) { w16(w, 0); w32(w, p); w32(w, 1); w32(w, 1); w32(w, 1); w32(w, 1); w32(w, 1); if (ver >= 5) w32(w, 0); }
    }
}
static int h_produce(R *r, W *w, int ver) {
    char t[300]; str(r, t, sizeof t); int acks = i16(r); i32(r);
    int nt = i32(r); w32(w, nt);
    while (nt-- > 0 && !r->dead) {
        str(r, t, sizeof t); wstr(w, t); int np = i32(r); w32(w, np);
        while (np-- > 0 && !r->dead) {
            int p = i32(r), size = i32(r), err = 0, cnt = 0; int64_t sz = size;
            while (sz > 0 && !r->dead) {
                uint8_t h[61]; get(r, h, 61);
                uint32_t len, delta, crc; memcpy(&len, h + 8, 4); memcpy(&crc, h + 17, 4); memcpy(&delta, h + 23, 4);
                len = __builtin_bswap32(len); delta = __builtin_bswap32(delta);
                if (h[16] != 2 || len < 49 || len > sz) { r->dead = 1; break; }
                if (verify) {
                    uint8_t *b = malloc(len - 49 + 1); get(r, b, len - 49);
                    uint32_t c = kc_crc32c(kc_crc32c(0, h + 21, 40), b, len - 49); free(b);
                    if (c != __builtin_bswap32(crc)) { err = 2; st_bad++; }
                } else skip(r, len - 49);
                cnt += delta + 1; sz -= 12 + (int64_t)len; st_batch++;
            }
            st_rec += cnt; st_bytes += size;
            w32(w, p); w16(w, err); w64(w, atomic_fetch_add(&next_off[p & 4095], cnt)); w64(w, -1); if (ver >= 5) w64(w, 0);
        }
    }
    w32(w, 0);
    return acks;
}
typedef struct Blob { char name[300]; uint8_t *p; size_t n; int recs; struct Blob *next; } Blob;
static Blob *blobs; static pthread_mutex_t blob_mu = PTHREAD_MUTEX_INITIALIZER;
static Blob *blob(const char *t) {
    pthread_mutex_lock(&blob_mu);
    Blob *b = blobs; while (b && strcmp(b->name, t)) b = b->next;
    if (!b) {
        char path[800]; snprintf(path, sizeof path, "%s/%s.batch", dir, t);
        b = calloc(1, sizeof *b); strcpy(b->name, t); FILE *f = fopen(path, "rb");
        if (f) { b->p = malloc(64 << 20); b->n = fread(b->p, 1, 64 << 20, f); fclose(f); uint32_t d; memcpy(&d, b->p + 23, 4); b->recs = __builtin_bswap32(d) + 1; }
        b->next = blobs; blobs = b;
    }
    pthread_mutex_unlock(&blob_mu);
    return b;
}
static int h_fetch(R *r, W *w, int ver, int fd) {       /* sends the response itself */
    i32(r); i32(r); i32(r); int64_t maxb = i32(r); i8(r); if (ver >= 7) { i32(r); i32(r); }
    enum { MAXV = 8192 }; static __thread struct iovec v[MAXV]; static __thread uint8_t bases[MAXV/2][8]; static __thread size_t cut[MAXV]; int nv = 0, nb = 0; size_t extra = 0;
    w32(w, 0); if (ver >= 7) { w16(w, 0); w32(w, 0); }
    int nt = i32(r); w32(w, nt); size_t mark = 0; char t[300];
    while (nt-- > 0 && !r->dead) {
        str(r, t, sizeof t); wstr(w, t); Blob *b = blob(t); int np = i32(r); w32(w, np);
        while (np-- > 0 && !r->dead) {
            int p = i32(r); if (ver >= 9) i32(r); int64_t off = i64(r); if (ver >= 5) i64(r); int64_t pmax = i32(r);
            w32(w, p); w16(w, 0); w64(w, hw); w64(w, hw); if (ver >= 5) w64(w, 0); w32(w, 0); if (ver >= 11) w32(w, -1);
            size_t at = w->n; int64_t left = pmax < maxb ? pmax : maxb, size = 0; w32(w, 0);
            int start = nv;
            if (b->n) for (int64_t base = off - off % b->recs; base < hw && nv + 4 < MAXV && (size == 0 || size + (int64_t)b->n <= left); base += b->recs) {
                if (nv == start) { cut[nv] = w->n; v[nv++] = (struct iovec){0, 0}; }      /* response bytes up to here, fixed below */
                uint64_t be = __builtin_bswap64(base); memcpy(bases[nb], &be, 8);
                v[nv++] = (struct iovec){bases[nb++], 8}; v[nv++] = (struct iovec){b->p + 8, b->n - 8}; size += b->n;
                st_rec += b->recs;
            }
            uint32_t be = __builtin_bswap32((uint32_t)size); memcpy(w->b + at, &be, 4); extra += size; maxb -= size; st_bytes += size;
        }
    }
    if (r->left > 0) skip(r, r->left);
    for (int i = 0; i < nv; i++) if (v[i].iov_base == 0) { v[i].iov_base = w->b + mark; v[i].iov_len = cut[i] - mark; mark = cut[i]; }
    v[nv++] = (struct iovec){w->b + mark, w->n - mark};
    uint32_t be = __builtin_bswap32((uint32_t)(w->n - 4 + extra)); memcpy(w->b, &be, 4); st_fetch++;
    if (extra == 0) usleep(2000);
    return sendall(fd, v, nv);
}
static void h_offsets(R *r, W *w, int ver) {
    i32(r); if (ver >= 2) { i8(r); w32(w, 0); }
    int nt = i32(r); w32(w, nt); char t[300];
    while (nt-- > 0 && !r->dead) { str(r, t, sizeof t); wstr(w, t); int np = i32(r); w32(w, np);
        while (np-- > 0 && !r->dead) { int p = i32(r); int64_t ts = i64(r); w32(w, p); w16(w, 0); w64(w, -1); w64(w, ts == -2 ? 0 : hw); } }
}
static void *conn(void *arg) {
    R *r = calloc(1, sizeof *r); r->fd = (int)(intptr_t)arg; W *w = malloc(sizeof *w); int one = 1; setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        r->left = 4; int32_t len = i32(r); if (r->dead || len < 8) break;
        r->left = len; int key = i16(r), ver = i16(r); int32_t cid = i32(r); char cl[300]; str(r, cl, sizeof cl);
        w->n = 0; w32(w, 0); w32(w, cid); int reply = 1; st_req++;
        switch (key) {
        case 0: reply = h_produce(r, w, ver) != 0; break;
        case 1: if (h_fetch(r, w, ver, r->fd)) r->dead = 1; reply = 0; break;
        case 2: h_offsets(r, w, ver); break;
        case 3: h_metadata(r, w, ver); break;
        case 10: if (ver >= 1) w32(w, 0); w16(w, 0); if (ver >= 1) wstr(w, NULL); w32(w, 1); wstr(w, "127.0.0.1"); w32(w, port); break;
        case 18: h_versions(w, ver); break;
        case 22: w32(w, 0); w16(w, 0); w64(w, 1000); w16(w, 0); break;
        default: {                                    /* the body does not depend on the request */
            int i = BUILT_IN; while (i < NAPI && (API[i].k != key || API[i].lo != ver)) i++;
            if (i < NAPI) { wb(w, API[i].answer, API[i].n); API[i].count++; } else { r->dead = 1; fprintf(stderr, "api %d v%d not supported\n", key, ver); }
        }
        }
        if (r->dead) break;
        if (r->left > 0) skip(r, r->left);
        if (reply) { uint32_t be = __builtin_bswap32((uint32_t)(w->n - 4)); memcpy(w->b, &be, 4); struct iovec v = {w->b, w->n}; if (sendall(r->fd, &v, 1)) break; }
    }
    close(r->fd); free(r); free(w); return NULL;
}
static void *stats(void *arg) {
    sigset_t *s = arg; int sig;
    for (;;) {
        sigwait(s, &sig); struct rusage u; getrusage(RUSAGE_SELF, &u);
        printf("{\"req\":%lld,\"fetch\":%lld,\"batches\":%lld,\"records\":%lld,\"bytes\":%lld,\"badcrc\":%lld,\"cpu\":%.6f", (long long)st_req, (long long)st_fetch, (long long)st_batch, (long long)st_rec,
               (long long)st_bytes, (long long)st_bad, u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6);
        for (int i = BUILT_IN; i < NAPI; i++) printf(",\"api%d\":%lld", API[i].k, (long long)API[i].count);
        puts("}"); fflush(stdout);
    }
    return NULL;
}
int main(int c, char **v) {
    if (c < 5) { fprintf(stderr, "usage: nullbroker PORT PARTITIONS DIR HIGH_WATERMARK [--verify]\n"); return 2; }
    port = atoi(v[1]); nparts = atoi(v[2]); dir = v[3]; hw = atoll(v[4]); verify = c > 5;
    if (load_answers()) { perror("answers"); return 1; }
    static sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); pthread_sigmask(SIG_BLOCK, &s, NULL);
    pthread_t th; pthread_create(&th, NULL, stats, &s);
    int l = socket(AF_INET, SOCK_STREAM, 0), one = 1; setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}; socklen_t al = sizeof a;
    if (bind(l, (void*)&a, sizeof a) || listen(l, 64)) { perror("bind"); return 1; }
    getsockname(l, (void*)&a, &al); port = ntohs(a.sin_port); printf("127.0.0.1:%d\n", port); fflush(stdout);
    for (;;) { int fd = accept(l, NULL, NULL); if (fd < 0) continue; pthread_create(&th, NULL, conn, (void*)(intptr_t)fd); pthread_detach(th); }
}
