/* A plugin for QEMU's user emulation: how often each translation block ran behind which other between two markers, and
 * what the data caches missed.  bench/arm/emulator.py compiles it and says how it is used.
 *
 * The emulated program marks a place by getppid().  Of MARKS + 1 in a row the first begins to look up addresses in the
 * caches, every one from the third on ends a segment, and the last ends looking up, too: what a program loads before and
 * between does not touch the caches, and up to the first mark of all it runs without counters.  A segment is written as
 *   segment N
 *   misses STREAM1 RANDOM1 STREAM2 RANDOM2 STREAM3 RANDOM3     lines that level 1, 2, 3 lacked
 *   BEFORE BLOCK COUNT                                         how often a block ran behind another (-1: behind none)
 * and blocks, when they are first seen, as "block N ADDRESS HEX", the bytes of its instructions.
 * Arguments: out=FILE marker=SYSCALL marks=MARKS cache1=BYTES:WAYS cache2=BYTES:WAYS cache3=BYTES:WAYS
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of QEMU's plugin interface, version 1, that is used here. */
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
                                             void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
extern void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t,
                                                                     uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                                     uint64_t));
extern void qemu_plugin_reset(plugin_id, void (*)(plugin_id));
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern unsigned qemu_plugin_mem_size_shift(uint32_t);
int qemu_plugin_version = 1;

enum { NO_REGISTERS = 0, READ_OR_WRITE = 3, LINE = 6, PAGE = 12, LEVELS = 3, STREAMS = 16 };

struct edge { /* a block behind another */
    int before;
    uint64_t count;
    struct edge *next;
};

struct block {
    uint64_t address, hash;
    struct block *next;
    struct edge *edges; /* the last one that was taken is the first */
    int number;
};

struct cache {
    uint64_t *lines;
    uint64_t sets;
    int ways;
    uint64_t streamed, random;
};

static FILE *out;
static int64_t marker;
static bool begun, looking;
static int marks, seen, segments, blocks, last_block = -1;
static struct block *table[1 << 16], **all;
static struct cache caches[LEVELS];
static uint64_t streams[STREAMS];
static int oldest;
static uint64_t last_line = ~0ull;

/* Whether the line was there; it is the newest of its set afterwards. */
static bool touch(struct cache *cache, uint64_t line)
{
    uint64_t *set = cache->lines + (line % cache->sets) * cache->ways;
    int way = 0;
    while (way < cache->ways - 1 && set[way] != line)
        way++;
    bool found = set[way] == line;
    memmove(set + 1, set, way * sizeof *set);
    set[0] = line;
    return found;
}

/* Whether a prefetcher would have had the line: it follows one of the last missed ones. */
static bool follows(uint64_t line)
{
    for (int i = 0; i < STREAMS; i++)
        if (line - streams[i] - 1 < 2 || streams[i] - line - 1 < 1) {
            streams[i] = line;
            return true;
        }
    streams[oldest++ % STREAMS] = line;
    return false;
}

static void look_up(uint64_t line)
{
    if (line == last_line)
        return;
    last_line = line;
    if (touch(&caches[0], line))
        return;
    bool streamed = follows(line);
    for (int level = 0; level < LEVELS; level++) {
        if (level && (!caches[level].ways || touch(&caches[level], line)))
            return;
        *(streamed ? &caches[level].streamed : &caches[level].random) += 1;
    }
}

static void on_memory(unsigned cpu, uint32_t info, uint64_t address, void *unused)
{
    (void)cpu, (void)unused;
    if (!looking)
        return;
    uint64_t last = address + (1ull << qemu_plugin_mem_size_shift(info)) - 1;
    look_up(address >> LINE);
    if (last >> LINE != address >> LINE)
        look_up(last >> LINE);
}

static uint64_t hash_of(const struct qemu_plugin_tb *tb, size_t count)
{
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const unsigned char *bytes = qemu_plugin_insn_data(insn);
        for (size_t k = 0; k < qemu_plugin_insn_size(insn); k++)
            hash = (hash ^ bytes[k]) * 1099511628211ull;
    }
    return hash;
}

static struct block *known(const struct qemu_plugin_tb *tb, size_t count)
{
    uint64_t address = qemu_plugin_tb_vaddr(tb), hash = hash_of(tb, count);
    struct block **slot = &table[(address ^ address >> 16 ^ hash) & 0xffff];
    for (struct block *each = *slot; each; each = each->next)
        if (each->address == address && each->hash == hash)
            return each;
    struct block *made = calloc(1, sizeof *made);
    *made = (struct block){address, hash, *slot, NULL, blocks};
    *slot = made;
    all = realloc(all, (blocks + 1) * sizeof *all);
    all[blocks++] = made;
    fprintf(out, "block %d %llx ", made->number, (unsigned long long)address);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const unsigned char *bytes = qemu_plugin_insn_data(insn);
        for (size_t k = 0; k < qemu_plugin_insn_size(insn); k++)
            fprintf(out, "%02x", bytes[k]);
    }
    fputc('\n', out);
    return made;
}

static void on_run(unsigned cpu, void *given)
{
    (void)cpu;
    struct block *block = given;
    struct edge **place = &block->edges, *edge;
    while ((edge = *place) && edge->before != last_block)
        place = &edge->next;
    if (!edge) {
        edge = calloc(1, sizeof *edge);
        edge->before = last_block;
    } else
        *place = edge->next;
    edge->next = block->edges;
    block->edges = edge;
    edge->count++;
    last_block = block->number;
}

static void on_block(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct block *block = known(tb, count);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_run, NO_REGISTERS, block);
    for (size_t i = 0; i < count && caches[0].ways; i++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), on_memory, NO_REGISTERS, READ_OR_WRITE, NULL);
}

static void on_syscall(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t);

/* What runs from here on is translated anew, with counters. */
static void with_counters(plugin_id id)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
}

static void write_segment(void)
{
    fprintf(out, "segment %d\nmisses", segments++);
    for (int level = 0; level < LEVELS; level++)
        fprintf(out, " %llu %llu", (unsigned long long)caches[level].streamed,
                (unsigned long long)caches[level].random);
    fputc('\n', out);
    for (int i = 0; i < blocks; i++)
        for (struct edge *edge = all[i]->edges; edge; edge = edge->next)
            if (edge->count)
                fprintf(out, "%d %d %llu\n", edge->before, i, (unsigned long long)edge->count);
    fflush(out);
}

static void on_syscall(plugin_id id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                       uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != marker)
        return;
    if (seen > 1)
        write_segment();
    for (int level = 0; level < LEVELS; level++)
        caches[level].streamed = caches[level].random = 0;
    for (int i = 0; i < blocks; i++)
        for (struct edge *edge = all[i]->edges; edge; edge = edge->next)
            edge->count = 0;
    last_block = -1;
    if (!begun)
        qemu_plugin_reset(id, with_counters);
    begun = true;
    looking = seen < marks;
    seen = seen == marks ? 0 : seen + 1;
}

static bool cache_of(const char *text, struct cache *cache)
{
    unsigned long bytes;
    if (sscanf(text, "%lu:%d", &bytes, &cache->ways) != 2)
        return false;
    if (!cache->ways)
        return true;
    cache->sets = (bytes >> LINE) / cache->ways;
    cache->lines = malloc(cache->sets * cache->ways * sizeof *cache->lines);
    memset(cache->lines, 0xff, cache->sets * cache->ways * sizeof *cache->lines);
    return cache->sets > 0;
}

int qemu_plugin_install(plugin_id id, const void *info, int count, char **given)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        if (!strncmp(given[i], "out=", 4))
            out = fopen(given[i] + 4, "w");
        else if (!strncmp(given[i], "marker=", 7))
            marker = atoi(given[i] + 7);
        else if (!strncmp(given[i], "marks=", 6))
            marks = atoi(given[i] + 6);
        else if (strncmp(given[i], "cache", 5) || given[i][5] < '1' || given[i][5] > '3' || given[i][6] != '=' ||
                 !cache_of(given[i] + 7, &caches[given[i][5] - '1']))
            return -1;
    }
    if (!out || !marker || marks < 2)
        return -1;
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    return 0;
}
