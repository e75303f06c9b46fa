/* wire.c: a switch between network devices in which packets wait, queue and get lost as on real cables,
 * for kernels whose `tc` cannot do that.
 *
 *     wire DELAY LOSS RATE PORT...        wire 5ms 0.1% 1gbit port1 port2
 *
 * DELAY is one way, from any port to any other ("0us": none); LOSS the share of the frames that vanish;
 * RATE is what a port sends at most ("0kbit": no limit). Runs until it is killed. Compiled and started
 * by scripts/lib/hosts.sh.
 *
 * Invariant: frames leave a port in the order in which they came for it, never before they are due. A
 * frame is read at once, and is due when the port has sent what is before it, plus the delay. A queue
 * holds QUEUE_BYTES; what comes then is lost, as in a switch. Each frame is allocated when it comes and
 * freed when it left. Frames may be 64 KB that the sender's device would have cut: they carry the
 * kernel's note on that (virtio_net_hdr), which is handed on with them. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PORTS = 9,
    MAX_ADDRESSES = 64,
    FRAME_BYTES = 72 * 1024,    /* 64 KB, headers and the kernel's note */
    QUEUE_BYTES = 32 << 20,     /* a port's queue without a rate: never the limit */
    QUEUE_MICROSECONDS = 50000, /* with a rate: what it sends in this time */
    BATCH = 32,                 /* frames read from a port before the others have their turn */
};

typedef struct frame {
    struct frame *next;
    int64_t due; /* nanoseconds */
    size_t bytes;
    unsigned char data[];
} frame;

typedef struct port {
    int fd;
    frame *head, *tail;
    size_t queued;     /* bytes in the queue */
    int64_t free_from; /* when what is queued has been sent, before the delay */
} port;

typedef struct address {
    unsigned char mac[6];
    int port;
} address;

typedef struct wire {
    int64_t delay;     /* nanoseconds */
    double loss, rate; /* share; bytes per nanosecond, 0: no limit */
    size_t limit;      /* bytes of a queue */
    uint64_t random;
    int ports, addresses;
    port port[MAX_PORTS];
    address address[MAX_ADDRESSES];
} wire;

static void die(const char *what, const char *which)
{
    fprintf(stderr, "wire: %s: %s: %s\n", which, what, strerror(errno));
    exit(1);
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* A number and its unit, in the base unit of the table; ends the program on anything else. */
static double quantity(const char *text, const char *const units[], const double factors[])
{
    char *end;
    double value = strtod(text, &end);
    for (int i = 0; units[i]; i++) {
        if (end != text && value >= 0 && strcmp(end, units[i]) == 0) {
            return value * factors[i];
        }
    }
    fprintf(stderr, "wire: '%s' is not understood\n", text);
    exit(2);
}

static int open_port(const char *name)
{
    const int on = 1, bytes = 64 << 20;
    const struct sockaddr_ll at = {.sll_family = AF_PACKET,
                                   .sll_protocol = htons(ETH_P_ALL),
                                   .sll_ifindex = (int)if_nametoindex(name)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (at.sll_ifindex == 0 || fd < 0) {
        die("cannot be opened", name);
    }
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0) {
        die("cannot be set up", name);
    }
    /* Room for what comes while this process waits for a processor; less without the privilege. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        die("cannot be bound", name);
    }
    return fd;
}

/* xorshift64*: the same losses in every run that sends the same frames. */
static int is_lost(wire *w)
{
    w->random ^= w->random >> 12;
    w->random ^= w->random << 25;
    w->random ^= w->random >> 27;
    return (double)((w->random * 2685821657736338717U) >> 11) * 0x1p-53 < w->loss;
}

/* The port behind an address, or -1. */
static int find(const wire *w, const unsigned char *mac)
{
    for (int i = 0; i < w->addresses; i++) {
        if (memcmp(w->address[i].mac, mac, 6) == 0) {
            return w->address[i].port;
        }
    }
    return -1;
}

static void learn(wire *w, const unsigned char *mac, int from)
{
    if (find(w, mac) < 0 && w->addresses < MAX_ADDRESSES) {
        address *a = &w->address[w->addresses++];
        memcpy(a->mac, mac, 6);
        a->port = from;
    }
}

static void enqueue(wire *w, port *p, const unsigned char *data, size_t bytes, int64_t at)
{
    if (p->queued + bytes > w->limit || is_lost(w)) {
        return;
    }
    frame *f = malloc(sizeof *f + bytes);
    if (!f) {
        return; /* lost, as in a switch without memory */
    }
    if (p->free_from < at) {
        p->free_from = at;
    }
    if (w->rate > 0) {
        p->free_from += (int64_t)((double)bytes / w->rate);
    }
    *f = (frame){.due = p->free_from + w->delay, .bytes = bytes};
    memcpy(f->data, data, bytes);
    if (p->tail) {
        p->tail->next = f;
    } else {
        p->head = f;
    }
    p->tail = f;
    p->queued += bytes;
}

/* Takes what has come to a port, and puts it where it goes: one port, or all others. */
static void take(wire *w, int from, unsigned char *buffer)
{
    for (int i = 0; i < BATCH; i++) {
        ssize_t got = recv(w->port[from].fd, buffer, FRAME_BYTES, MSG_TRUNC);
        if (got < 0) {
            return; /* nothing there, or the cable is cut */
        }
        const unsigned char *ether = buffer + sizeof(struct virtio_net_hdr);
        if ((size_t)got < sizeof(struct virtio_net_hdr) + ETH_HLEN || got > FRAME_BYTES) {
            continue;
        }
        learn(w, ether + 6, from);
        int to = find(w, ether);
        int64_t at = now();
        for (int p = 0; p < w->ports; p++) {
            if (p != from && (to < 0 || to == p)) {
                enqueue(w, &w->port[p], buffer, (size_t)got, at);
            }
        }
    }
}

/* Sends what is due at a port. What the device does not take, because it is down, is lost. */
static void give(port *p, int64_t at)
{
    while (p->head && p->head->due <= at) {
        frame *f = p->head;
        if (send(p->fd, f->data, f->bytes, 0) < 0 && errno == EAGAIN) {
            return;
        }
        p->head = f->next;
        if (!p->head) {
            p->tail = NULL;
        }
        p->queued -= f->bytes;
        free(f);
    }
}

static void run(wire *w)
{
    static unsigned char buffer[FRAME_BYTES];
    struct pollfd polled[MAX_PORTS];
    for (;;) {
        int64_t at = now(), wake = INT64_MAX;
        for (int p = 0; p < w->ports; p++) {
            give(&w->port[p], at);
            if (w->port[p].head && w->port[p].head->due < wake) {
                wake = w->port[p].head->due;
            }
            polled[p] = (struct pollfd){.fd = w->port[p].fd, .events = POLLIN};
        }
        int64_t left = wake == INT64_MAX ? 1000000000 : wake - now();
        left = left < 0 ? 0 : left;
        struct timespec wait = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        ppoll(polled, (nfds_t)w->ports, &wait, NULL);
        for (int p = 0; p < w->ports; p++) {
            if (polled[p].revents) {
                take(w, p, buffer);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static const char *const times[] = {"us", "ms", "s", NULL};
    static const char *const shares[] = {"%", NULL};
    static const char *const rates[] = {"kbit", "mbit", "gbit", NULL};
    static const double nanoseconds[] = {1e3, 1e6, 1e9}, hundredth[] = {0.01};
    static const double bytes_a_nanosecond[] = {1e3 / 8e9, 1e6 / 8e9, 1e9 / 8e9};
    wire w = {.random = 88172645463325252U, .ports = argc - 4};
    if (argc < 6 || w.ports > MAX_PORTS) {
        fprintf(stderr, "usage: wire DELAY LOSS RATE PORT PORT...\n");
        return 2;
    }
    w.delay = (int64_t)quantity(argv[1], times, nanoseconds);
    w.loss = quantity(argv[2], shares, hundredth);
    w.rate = quantity(argv[3], rates, bytes_a_nanosecond);
    w.limit = QUEUE_BYTES;
    if (w.rate > 0) {
        w.limit = (size_t)(w.rate * QUEUE_MICROSECONDS * 1e3) + 2 * FRAME_BYTES;
    }
    for (int p = 0; p < w.ports; p++) {
        w.port[p].fd = open_port(argv[4 + p]);
    }
    /* Before the programs that wait for its frames; without the privilege delays are less exact. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    run(&w);
}
