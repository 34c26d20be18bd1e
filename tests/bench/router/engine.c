/* A fake inference engine for benches: OpenAI chat completions, whole or streamed, from one thread.
 *
 *   engine PORT TTFT_US GAP_US JITTER_PERCENT
 *
 * Streams send a token every GAP_US (evenly jittered), the first after TTFT_US. Each token's text holds t=<nanoseconds
 * of CLOCK_MONOTONIC when it was written>, the first also r=<when the request was complete>, so that a load generator
 * on the same machine can tell what a proxy added from what the engine took. Timers sit on a wheel of quarter
 * milliseconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 250000LL
#define SLOTS 65536
#define READ 65536

typedef struct peer {
    int fd;
    char *in;
    size_t used, room;
    char *out;
    size_t out_used, out_done, out_room;
    int tokens_left, tokens_sent, usage;
    int64_t asked, due;
    struct peer *next, **link; /* in a slot of the wheel; link is NULL outside */
} peer;

static peer *wheel[SLOTS];
static int64_t wheel_at; /* the tick up to which the wheel has turned */
static int64_t ttft_ns, gap_ns;
static int jitter;
static int poller;
static uint32_t seed = 1;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void unschedule(peer *p) {
    if (!p->link) return;
    *p->link = p->next;
    if (p->next) p->next->link = p->link;
    p->link = NULL;
}

static void schedule(peer *p, int64_t due) {
    int64_t tick = due / TICK_NS + 1;
    if (tick <= wheel_at) tick = wheel_at + 1;
    peer **slot = &wheel[tick % SLOTS];
    p->due = due;
    p->next = *slot;
    if (p->next) p->next->link = &p->next;
    p->link = slot;
    *slot = p;
}

static void forget(peer *p) {
    unschedule(p);
    close(p->fd);
    free(p->in);
    free(p->out);
    free(p);
}

static void put(peer *p, const char *data, size_t size) {
    if (p->out_used + size > p->out_room) {
        p->out_room = (p->out_used + size) * 2;
        p->out = realloc(p->out, p->out_room);
    }
    memcpy(p->out + p->out_used, data, size);
    p->out_used += size;
}

/* -1 when the peer is gone. What does not fit in the socket waits for EPOLLOUT. */
static int flush(peer *p) {
    while (p->out_done < p->out_used) {
        ssize_t n = send(p->fd, p->out + p->out_done, p->out_used - p->out_done, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) return -1;
            struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = p};
            epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &e);
            return 0;
        }
        p->out_done += n;
    }
    p->out_done = p->out_used = 0;
    return 0;
}

static void put_chunk(peer *p, const char *text, int size) {
    char head[16];
    put(p, head, sprintf(head, "%x\r\n", size));
    put(p, text, size);
    put(p, "\r\n", 2);
}

#define FRAME "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"fake-model\",\"choices\":"

static void token(peer *p) {
    char text[512], stamp[96];
    int64_t at = now();
    if (p->tokens_sent)
        sprintf(stamp, "t=%lld ", (long long)at);
    else
        sprintf(stamp, "r=%lld t=%lld ", (long long)p->asked, (long long)at);
    put_chunk(p, text, sprintf(text, FRAME "[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n", stamp));
    p->tokens_sent++;
    if (--p->tokens_left) {
        int64_t gap = gap_ns;
        if (jitter) {
            seed = seed * 1664525u + 1013904223u;
            gap += gap_ns * jitter / 100 * ((int64_t)(seed >> 8) - (1 << 23)) / (1 << 23);
        }
        schedule(p, p->due + gap > at - 1000000000LL ? p->due + gap : at);
        return;
    }
    put_chunk(p, text, sprintf(text, FRAME "[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"));
    if (p->usage)
        put_chunk(p, text, sprintf(text, FRAME "[],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
                                   p->tokens_sent, p->tokens_sent + 16));
    put_chunk(p, "data: [DONE]\n\n", 14);
    put(p, "0\r\n\r\n", 5);
}

static void whole(peer *p, const char *body) {
    char head[160];
    size_t size = strlen(body);
    put(p, head, sprintf(head, "HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", size));
    put(p, body, size);
}

static const char *after_key(const char *body, size_t size, const char *key) {
    const char *at = memmem(body, size, key, strlen(key));
    if (!at) return NULL;
    for (at += strlen(key); at < body + size && (*at == ':' || *at == ' '); at++) {}
    return at;
}

static void completion(peer *p, const char *body, size_t size) {
    const char *stream = after_key(body, size, "\"stream\"");
    const char *most = after_key(body, size, "\"max_tokens\"");
    if (!stream || *stream != 't') {
        whole(p, "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"fake-model\",\"choices\":[{\"index\":0,"
                 "\"message\":{\"role\":\"assistant\",\"content\":\"The quick brown fox jumps over the lazy dog.\"},\"logprobs\":null,"
                 "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":16,\"completion_tokens\":10,\"total_tokens\":26}}");
        return;
    }
    static const char head[] = "HTTP/1.1 200 OK\r\nserver: fake\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
    put(p, head, sizeof head - 1);
    p->usage = memmem(body, size, "\"include_usage\"", 15) != NULL;
    p->tokens_left = most ? atoi(most) : 32;
    p->tokens_sent = 0;
    p->asked = now();
    schedule(p, p->asked + ttft_ns);
}

static size_t content_length(const char *head, size_t size) {
    for (const char *line = memchr(head, '\n', size); line; line = memchr(line + 1, '\n', head + size - line - 1))
        if (!strncasecmp(line + 1, "content-length:", 15)) return strtoul(line + 16, NULL, 10);
    return 0;
}

/* Answers all whole requests in the buffer, one at a time. */
static int answer(peer *p) {
    while (p->used && !p->tokens_left) {
        char *end = memmem(p->in, p->used, "\r\n\r\n", 4);
        if (!end) break;
        size_t head = end + 4 - p->in, body = content_length(p->in, head);
        if (p->used < head + body) break;
        if (*p->in == 'P')
            completion(p, p->in + head, body);
        else
            whole(p, "{\"object\":\"list\",\"data\":[{\"id\":\"fake-model\",\"object\":\"model\"}],\"model_path\":\"fake-model\"}");
        p->used -= head + body;
        memmove(p->in, p->in + head + body, p->used);
    }
    return flush(p);
}

static int take(peer *p) {
    for (;;) {
        if (p->room - p->used < READ) p->in = realloc(p->in, p->room += READ);
        ssize_t n = recv(p->fd, p->in + p->used, p->room - p->used, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return -1;
        if (n < 0) return answer(p);
        p->used += n;
        if (p->used < p->room) return answer(p);
    }
}

static void welcome(int door) {
    int fd, one = 1;
    while ((fd = accept4(door, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        peer *p = calloc(1, sizeof *p);
        p->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
    }
}

static void turn_wheel(void) {
    for (int64_t tick = now() / TICK_NS; wheel_at < tick;) {
        wheel_at++;
        peer **slot = &wheel[wheel_at % SLOTS], *p = *slot, *next;
        *slot = NULL;
        if (p) p->link = &p;
        for (; p; p = next) {
            next = p->next;
            p->link = NULL;
            if (p->due / TICK_NS + 1 > wheel_at) { /* another turn of the wheel */
                schedule(p, p->due);
                continue;
            }
            token(p);
            if (flush(p) < 0) {
                forget(p);
            } else if (!p->tokens_left && p->used && answer(p) < 0) {
                forget(p);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "engine PORT TTFT_US GAP_US JITTER_PERCENT\n"), 2;
    ttft_ns = atoll(argv[2]) * 1000;
    gap_ns = atoll(argv[3]) * 1000;
    jitter = atoi(argv[4]);
    signal(SIGPIPE, SIG_IGN);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(door, (void *)&address, sizeof address) || listen(door, 4096)) return perror("engine"), 1;
    poller = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
    epoll_ctl(poller, EPOLL_CTL_ADD, door, &e);
    wheel_at = now() / TICK_NS;
    for (;;) {
        struct timespec nap = {0, TICK_NS};
        int n = epoll_pwait2(poller, events, 512, &nap, NULL);
        for (int i = 0; i < n; i++) {
            peer *p = events[i].data.ptr;
            if (!p) {
                welcome(door);
                continue;
            }
            int gone = 0;
            if (events[i].events & EPOLLOUT) {
                struct epoll_event only_in = {.events = EPOLLIN, .data.ptr = p};
                epoll_ctl(poller, EPOLL_CTL_MOD, p->fd, &only_in);
                gone = flush(p) < 0;
            }
            if (!gone && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) gone = take(p) < 0;
            if (gone) forget(p);
        }
        turn_wheel();
    }
}
