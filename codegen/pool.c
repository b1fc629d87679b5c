/* Turns that a thread waits for the next run before it sleeps: tens of microseconds. */
enum { AWAKE = 1 << 11 };

typedef struct {
    context own;
    struct pool *pool;
} worker;

/* Threads that wait for the runs of one context. This memory is not the context's: a context that goes
   without NAME_end leaves them asleep. */
struct pool {
    crew crew;
    worker workers[WORKERS];
    pthread_t threads[WORKERS]; /* of the workers, but of the first: that is who calls */
    pthread_mutex_t lock;
    pthread_cond_t called;
    unsigned calls; /* runs that have begun, and the end */
    int busy;       /* workers that have not ended this run */
    int over;
    int core;      /* where the first worker was when the others were placed; -1: they are not */
    pid_t process; /* a fork has the memory, but no threads */
    const void *const *inputs;
    void *const *outputs;
};

static void *work(void *argument)
{
    const worker *w = argument;
    struct pool *pool = w->pool;
    for (unsigned calls = 0;; calls++) {
        for (int turns = 0; turns < AWAKE && __atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) == calls;
             turns++)
            pause_turn(turns);
        if (__atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) == calls) {
            pthread_mutex_lock(&pool->lock);
            while (__atomic_load_n(&pool->calls, __ATOMIC_ACQUIRE) == calls)
                pthread_cond_wait(&pool->called, &pool->lock);
            pthread_mutex_unlock(&pool->lock);
        }
        if (pool->over) return NULL;
        network(&w->own, pool->inputs, pool->outputs);
        __atomic_sub_fetch(&pool->busy, 1, __ATOMIC_RELEASE);
    }
}

/* Let all threads go on. */
static void call_all(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    __atomic_store_n(&pool->calls, pool->calls + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_broadcast(&pool->called);
}

/* Give every thread a core of its own, where the system can be asked for one: left to itself, it may share
   one with a thread that waits for it. */
static void place(struct pool *pool)
{
#ifdef __linux__
    const int here = sched_getcpu();
    if (here < 0 || here == pool->core) return;
    pool->core = here;
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !CPU_ISSET((size_t)here, &allowed)) return;
    const int enough = CPU_COUNT(&allowed) >= WORKERS;
    size_t core = (size_t)here;
    for (int k = 1; k < WORKERS; k++) {
        do core = (core + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(core, &allowed));
        CPU_ZERO(&own);
        CPU_SET(core, &own);
        pthread_setaffinity_np(pool->threads[k], sizeof own, enough ? &own : &allowed);
    }
#else
    (void)pool;
#endif
}

/* End so many threads, wait for them, and free what they had. */
static void end(struct pool *pool, int threads)
{
    pool->over = 1;
    call_all(pool);
    for (int k = 1; k < threads; k++) pthread_join(pool->threads[k], NULL);
    pthread_cond_destroy(&pool->called);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* The threads of a context, started; NULL where one cannot be had. Signals go to the program's. */
static struct pool *begin(const context *shared)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->core = -1;
    pool->process = getpid();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->called, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int k = 0, failed = 0;
    for (; k < WORKERS && !failed; k++) {
        worker *w = &pool->workers[k];
        w->own = *shared;
        w->pool = pool;
        w->own.crew = &pool->crew;
        w->own.scratch += (size_t)k * SCRATCH;
#if CREW > 1
        w->own.first = IMAGES * k / CREW;
        w->own.stop = IMAGES * (k + 1) / CREW;
        w->own.maps += (size_t)k * MAPS;
        w->own.arena += (size_t)k * ARENA;
#else
        w->own.me = k;
#ifdef ARENA
        w->own.rings = w->own.arena + (size_t)k * ARENA;
#endif
#endif
        failed = k > 0 && pthread_create(&pool->threads[k], NULL, work, w) != 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return pool;
    end(pool, k - 1);
    return NULL;
}

void NAME_end(NAME_context *m)
{
    if (!m->pool) return;
    if (m->pool->process == getpid()) end(m->pool, WORKERS);
    else free(m->pool);
    m->pool = NULL;
}

/* Run the network on all threads. 1: one could not be started. */
static int run(NAME_context *m, const void *const *inputs, void *const *outputs)
{
    if (m->pool && m->pool->process != getpid()) NAME_end(m);
    if (!m->pool) m->pool = begin(&m->shared);
    struct pool *pool = m->pool;
    if (!pool) return 1;
    place(pool);
    pool->inputs = inputs;
    pool->outputs = outputs;
    pool->busy = WORKERS - 1;
    call_all(pool);
    network(&pool->workers[0].own, inputs, outputs);
    for (int turns = 0; __atomic_load_n(&pool->busy, __ATOMIC_ACQUIRE) > 0; turns += turns < PATIENCE)
        pause_turn(turns);
    return 0;
}
