// Lets a library find a processor without what came after the first AVX-512 servers.
//
// Each CPUID instruction of the library becomes one that is not defined, of the same two bytes.  The signal that this
// raises is answered with what the processor says, less the newer instructions.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(place) (1u << (place))

// How often the processor's newer instructions were kept from the library.
int kept = 0;

static void answer(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0x0b) {
        signal(number, SIG_DFL);
        return;
    }
    unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX], a, b, c, d;
    __cpuid_count(leaf, part, a, b, c, d);
    if (leaf == 7 && part == 0) {
        // VBMI, VBMI2, GFNI, VNNI, BITALG, VPOPCNTDQ; FP16 and the matrix tiles
        kept++;
        c &= ~(BIT(1) | BIT(6) | BIT(8) | BIT(11) | BIT(12) | BIT(14));
        d &= ~(BIT(22) | BIT(23) | BIT(24) | BIT(25));
    }
    if (leaf == 7 && part == 1) {
        // AVX-VNNI, BF16, tiles of FP16, AVX-IFMA; AVX-VNNI of other types
        a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(23));
        d &= ~(BIT(4) | BIT(5) | BIT(10));
    }
    registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
    registers[REG_RIP] += 2;
}

// Returns 0, or -1 where memory may not be changed.
int keep(char *base, const size_t *places, size_t count) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGILL, &action, NULL))
        return -1;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < count; i++) {
        unsigned char *code = (unsigned char *)base + places[i];
        void *start = (void *)((uintptr_t)code & ~(page - 1));
        if (mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC))
            return -1;
        code[0] = 0x0f, code[1] = 0x0b;
        mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
    }
    return 0;
}
