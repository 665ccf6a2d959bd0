/* An allocator for the fuzz of operators: each tensor ends where its pages end, and the next page is not there.
 *
 * A kernel that reads or writes past a tensor ends the process at once, and not only where it meets something. What it
 * writes into the room before a tensor, or into the few bytes after it, is seen when the tensor is freed, and aborts.
 * Freed memory is not there any more either. Tensors alone are guarded (torch asks for them by posix_memalign).
 *
 *     cc -O1 -shared -fPIC -o guard.so guard.c -ldl
 *     LD_PRELOAD=./guard.so python tests/fuzz/operators.py
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define ARENA (256UL << 30)
#define LARGEST (64UL << 20)
#define FILL 0xA5

typedef struct { uintptr_t start, end, room; } Header; /* the data, and where its pages begin */

static uintptr_t arena, next;

static uintptr_t up(uintptr_t value, uintptr_t step) { return (value + step - 1) / step * step; }

__attribute__((constructor)) static void reserve(void) {
    void *found = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found != MAP_FAILED) arena = next = (uintptr_t)found;
}

/* One page with the header, the pages of the data, one page that is not there. */
int posix_memalign(void **made, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real) real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    uintptr_t room = up(size ? size : 1, PAGE), taken = room + 2 * PAGE;
    if (!arena || alignment > PAGE || size > LARGEST || next + taken > arena + ARENA)
        return real(made, alignment, size);
    uintptr_t page = __sync_fetch_and_add(&next, taken), data = page + PAGE;
    if (mprotect((void *)page, PAGE + room, PROT_READ | PROT_WRITE)) return ENOMEM;
    uintptr_t start = data + room - up(size ? size : 1, alignment);
    memset((void *)data, FILL, room);
    *(Header *)page = (Header){start, start + size, room};
    *made = (void *)start;
    return 0;
}

static void untouched(uintptr_t from, uintptr_t to) {
    for (; from < to; from++)
        if (*(unsigned char *)from != FILL) abort();
}

void free(void *given) {
    static void (*real)(void *);
    if (!real) real = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    uintptr_t start = (uintptr_t)given;
    if (!arena || start < arena || start >= arena + ARENA) {
        real(given);
        return;
    }
    uintptr_t page = start / PAGE * PAGE - PAGE;
    while (((Header *)page)->start != start) page -= PAGE;
    Header header = *(Header *)page;
    untouched(page + PAGE, header.start);
    untouched(header.end, page + PAGE + header.room);
    madvise((void *)page, PAGE + header.room, MADV_DONTNEED);
    mprotect((void *)page, PAGE + header.room, PROT_NONE);
}
