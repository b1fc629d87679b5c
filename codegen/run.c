#ifdef ARENA
/* Before the arena of thread k. */
static uint64_t *canary(const context *shared, int k) { return (uint64_t *)(void *)(shared->arena + (size_t)k * ARENA - 16); }
#endif

#if WORKERS > 1
typedef struct {
    context own;
    int number;
    const void *const *inputs;
    void *const *outputs;
} worker;

static void *work(void *argument)
{
    const worker *w = argument;
    const context *m = &w->own;
    int start;
    for (int turns = 0; (start = __atomic_load_n(&m->crew->start, __ATOMIC_ACQUIRE)) == 0; turns += turns < 1 << 14) pause_turn(turns);
    if (start > 0) network(m, w->inputs, w->outputs);
    return NULL;
}
#endif

#if WORKERS > 1
/* Start a thread, on a core of its own where the system can be asked for one: left to itself, it may share one with a thread that waits for it. */
static int begin(pthread_t *thread, worker *w)
{
    pthread_attr_t how;
    if (pthread_attr_init(&how) != 0) return 1;
#ifdef __linux__
    cpu_set_t allowed, own;
    const int here = sched_getcpu();
    if (here >= 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= WORKERS) {
        size_t core = (size_t)here;
        for (int k = 0; k < w->number; k++)
            do core = (core + 1) % CPU_SETSIZE;
            while (!CPU_ISSET(core, &allowed));
        CPU_ZERO(&own);
        CPU_SET(core, &own);
        pthread_attr_setaffinity_np(&how, sizeof own, &own);
    }
#endif
    const int failed = pthread_create(thread, &how, work, w);
    pthread_attr_destroy(&how);
    return failed;
}
#endif

int NAME_run(NAME_context *m, const void *const *inputs, void *const *outputs)
{
#if WORKERS > 1
    crew all = {0, 0, 0};
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int k = 0; k < WORKERS; k++) {
        workers[k] = (worker){m->shared, k, inputs, outputs};
        workers[k].own.crew = &all;
        workers[k].own.scratch += (size_t)k * SCRATCH;
#if CREW > 1
        workers[k].own.first = IMAGES * k / CREW;
        workers[k].own.stop = IMAGES * (k + 1) / CREW;
        workers[k].own.maps += (size_t)k * MAPS;
        workers[k].own.arena += (size_t)k * ARENA;
#else
        workers[k].own.me = k;
#ifdef ARENA
        workers[k].own.rings = workers[k].own.arena + (size_t)k * ARENA;
#endif
#endif
    }
    int made = 1;
    while (made < WORKERS && begin(&threads[made], &workers[made]) == 0) made++;
    __atomic_store_n(&all.start, made == WORKERS ? 1 : -1, __ATOMIC_RELEASE);
    if (made == WORKERS) network(&workers[0].own, inputs, outputs);
    for (int k = 1; k < made; k++) pthread_join(threads[k], NULL);
    if (made < WORKERS) return 3;
#else
    network(&m->shared, inputs, outputs);
#endif
#ifdef RANK
    if (m->shared.chip->missing || m->shared.chip->overrun) return 4;
#endif
#ifdef ARENA
    for (int k = 1; k < WORKERS; k++)
        if (*canary(&m->shared, k) != CANARY) return 2;
#endif
    return *m->before != CANARY || *m->after != CANARY ? 2 : 0;
}
