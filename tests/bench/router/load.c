/* A load generator for benches: a closed loop of requests, or streams that start again when they end.
 *
 *   load PORT CONNECTIONS WARM_S SECONDS TOKENS BODY_BYTES KEY MODEL PID[,PID]
 *
 * TOKENS 0: whole answers; otherwise streams of so many tokens. Counts only what falls into the SECONDS after WARM_S.
 * Prints one JSON object: requests, chunks, errors, CPU nanoseconds of the PIDs over exactly that time, and percentiles
 * of what the proxy added to the time to first token and to each token's way (see engine.c), in microseconds.
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

#define MOST 8192
#define KEPT 8192

typedef struct {
    int fd, headed, chunked, ended, first, bad;
    size_t sent;
    long left; /* of a body with a length */
    int64_t began;
    char tail[KEPT]; /* what could not be understood yet: part of a head or of a line */
    size_t tail_used;
} client;

typedef struct {
    double *values;
    size_t used, room;
} sample;

static client clients[MOST];
static struct sockaddr_in address;
static char *request;
static size_t request_size;
static int poller, tokens, measuring;
static long requests, chunks, errors;
static char first_error[120];
static sample added_first, delay, latency;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t cpu_of(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) return 0;
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(sample *s, double value) {
    if (!measuring) return;
    if (s->used == s->room) s->values = realloc(s->values, (s->room = s->room ? s->room * 2 : 4096) * sizeof(double));
    s->values[s->used++] = value;
}

static void fail(const char *what, const char *text, size_t size) {
    errors++;
    if (*first_error) return;
    int n = snprintf(first_error, sizeof first_error, "%s: %.*s", what, (int)(size > 80 ? 80 : size), text);
    for (int i = 0; i < n && i < (int)sizeof first_error; i++)
        if (first_error[i] < 32 || first_error[i] == '"' || first_error[i] == '\\') first_error[i] = ' ';
}

static void push(client *c) {
    while (c->sent < request_size) {
        ssize_t n = send(c->fd, request + c->sent, request_size - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) break;
        c->sent += n;
    }
    struct epoll_event e = {.events = EPOLLIN | (c->sent < request_size ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

static void begin(client *c) {
    c->headed = c->chunked = c->ended = c->first = c->bad = 0;
    c->sent = c->tail_used = 0;
    c->left = -1;
    c->began = now();
    push(c);
}

static void dial(client *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&address, sizeof address)) exit((perror("load"), 1));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
    begin(c);
}

static void token_line(client *c, const char *line, size_t size, int64_t at) {
    const char *t = memmem(line, size, "t=", 2);
    if (memmem(line, size, "[DONE]", 6)) {
        c->ended = 1;
        return;
    }
    if (!t) return;
    int64_t sent = strtoll(t + 2, NULL, 10);
    const char *r = c->first ? NULL : memmem(line, size, "r=", 2);
    if (r) note(&added_first, ((at - c->began) - (sent - strtoll(r + 2, NULL, 10))) / 1e3);
    c->first = 1;
    note(&delay, (at - sent) / 1e3);
    chunks += measuring;
}

/* Takes one read; lines and heads may be cut anywhere. A body of chunks is over at a line that is "0". */
static int take(client *c, char *data, size_t size, int64_t at) {
    size_t used = 0;
    while (used < size) {
        if (c->headed && c->left >= 0) {
            size_t n = size - used < (size_t)c->left ? size - used : (size_t)c->left;
            c->left -= n;
            used += n;
            if (!c->left) return 1;
            continue;
        }
        char *end = memchr(data + used, '\n', size - used);
        size_t n = end ? (size_t)(end - data) + 1 - used : size - used;
        if (c->tail_used + n > KEPT) return fail("a long line", "", 0), -1;
        memcpy(c->tail + c->tail_used, data + used, n);
        c->tail_used += n;
        used += n;
        if (!end) break;
        const char *line = c->tail;
        size_t length = c->tail_used;
        c->tail_used = 0;
        if (!c->headed) {
            if (!strncmp(line, "HTTP/1.1 ", 9) && strncmp(line + 9, "200", 3)) c->bad = 1, fail("status", line, length);
            else if (!strncasecmp(line, "content-length:", 15)) c->left = atol(line + 15);
            else if (!strncasecmp(line, "transfer-encoding:", 18)) c->chunked = 1;
            else if (length <= 2) {
                c->headed = 1;
                if (c->left == 0) return 1;
                if (!c->chunked && c->left < 0) return fail("no length", "", 0), -1;
            }
        } else if (line[0] == '0' && length == 3) {
            c->headed = 2; /* the last chunk: an empty line follows */
        } else if (c->headed == 2 && length == 2) {
            if (tokens && !c->ended) fail("no [DONE]", "", 0);
            return 1;
        } else {
            token_line(c, line, length, at);
        }
    }
    return 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, sample *s) {
    if (!s->used) return;
    qsort(s->values, s->used, sizeof(double), by_size);
    printf(", \"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}", name, s->values[s->used / 2],
           s->values[(size_t)(s->used * 0.99)], s->values[s->used - 1]);
}

int main(int argc, char **argv) {
    if (argc != 10) return fprintf(stderr, "see the head of load.c\n"), 2;
    int port = atoi(argv[1]), connections = atoi(argv[2]), pids[64], pid_count = 0;
    double warm = atof(argv[3]), seconds = atof(argv[4]);
    long pad = atol(argv[6]);
    tokens = atoi(argv[5]);
    if (connections > MOST || warm + seconds > 700) return 2;
    for (char *p = strtok(argv[9], ","); p && pid_count < 64; p = strtok(NULL, ",")) pids[pid_count++] = atoi(p);
    char *body = malloc(pad + 1024);
    int n = sprintf(body, "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
                          "{\"role\":\"user\",\"content\":\"Say something about foxes. ", argv[8]);
    for (long i = 0; i < pad; i++) body[n++] = i % 6 == 5 ? ' ' : 'a' + i * 7 % 26;
    n += sprintf(body + n, "\"}],\"temperature\":0.7,\"max_tokens\":%d,\"stream\":%s}", tokens ? tokens : 100, tokens ? "true" : "false");
    request = malloc(n + 1024);
    request_size = sprintf(request, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: OpenAI/Python 3.0.0\r\n"
                                    "Accept: application/json\r\nAccept-Encoding: gzip, deflate\r\nAuthorization: Bearer %s\r\n"
                                    "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", port, argv[7], n);
    memcpy(request + request_size, body, n);
    request_size += n;
    signal(SIGPIPE, SIG_IGN);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    poller = epoll_create1(0);
    int64_t start = now(), from = start + (int64_t)(warm * 1e9), to = from + (int64_t)(seconds * 1e9), cpu = 0, own = 0;
    int64_t spread = tokens ? (int64_t)(warm * 0.7e9) : 0; /* so that streams do not run in step */
    int dialled = 0;
    static char data[262144];
    struct epoll_event events[512];
    for (;;) {
        int64_t t = now();
        while (dialled < connections && (!spread || t - start >= spread * dialled / connections)) dial(&clients[dialled++]);
        if (!measuring && t >= from && dialled == connections) {
            measuring = 1;
            to = t + (int64_t)(seconds * 1e9);
            from = t;
            for (int i = 0; i < pid_count; i++) cpu += cpu_of(pids[i]);
            own = cpu_of(getpid());
        }
        if (measuring && t >= to) break;
        struct timespec nap = {0, 2000000};
        int count = epoll_pwait2(poller, events, 512, &nap, NULL);
        for (int i = 0; i < count; i++) {
            client *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) push(c);
            if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
            ssize_t got = recv(c->fd, data, sizeof data, MSG_DONTWAIT);
            if (got < 0 && errno == EAGAIN) continue;
            int64_t at = now();
            int end = got > 0 ? take(c, data, got, at) : (fail("cut off", "", 0), -1);
            if (end > 0) {
                requests += measuring;
                note(&latency, (at - c->began) / 1e3);
                begin(c);
            } else if (end < 0) {
                close(c->fd);
                dial(c);
            }
        }
    }
    int64_t end = now(), cpu_end = 0;
    for (int i = 0; i < pid_count; i++) cpu_end += cpu_of(pids[i]);
    printf("{\"seconds\": %.3f, \"requests\": %ld, \"chunks\": %ld, \"errors\": %ld, \"cpu_ns\": %lld, \"own_ns\": %lld, \"first_error\": \"%s\"",
           (end - from) / 1e9, requests, chunks, errors, (long long)(cpu_end - cpu), (long long)(cpu_of(getpid()) - own), first_error);
    show("latency_us", &latency);
    show("added_first_us", &added_first);
    show("delay_us", &delay);
    printf("}\n");
    return 0;
}
