/* Threads that run a network together, and how they wait for one another. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define WORKERS (THREADS * CREW)

struct crew {
    int arrived;   /* at the end of an operator */
    unsigned turn; /* how often all have arrived */
};

/* Turns of a wait until a thread leaves its core to others: there are fewer cores than threads. */
enum { PATIENCE = 1 << 14 };

static inline void pause_turn(int turns)
{
    if (turns >= PATIENCE) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#if THREADS > 1
/* This thread's share of n equal pieces of work. */
#define FIRST(n) ((int)((int64_t)(n) * m->me / THREADS))
#define STOP(n) ((int)((int64_t)(n) * (m->me + 1) / THREADS))
#define SYNC() wait_for_all(m->crew)

static inline void wait_for_all(crew *all)
{
    const unsigned turn = __atomic_load_n(&all->turn, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&all->arrived, 1, __ATOMIC_ACQ_REL) == THREADS) {
        __atomic_store_n(&all->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&all->turn, turn + 1, __ATOMIC_RELEASE);
        return;
    }
    for (int turns = 0; __atomic_load_n(&all->turn, __ATOMIC_ACQUIRE) == turn; turns += turns < PATIENCE)
        pause_turn(turns);
}
#endif
