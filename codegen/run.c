#ifdef ARENA
/* Before the arena of thread k. */
static uint64_t *canary(const context *shared, int k)
{
    return (uint64_t *)(void *)(shared->arena + (size_t)k * ARENA - 16);
}
#endif

#if THREADS * CREW == 1
void NAME_end(NAME_context *m) { (void)m; }
#endif

int NAME_run(NAME_context *m, const void *const *inputs, void *const *outputs)
{
#if THREADS * CREW > 1
    if (run(m, inputs, outputs) != 0) return 3;
#else
    network(&m->shared, inputs, outputs);
#endif
#ifdef RANK
    if (m->shared.chip->missing || m->shared.chip->overrun) return 4;
#endif
#ifdef ARENA
    for (int k = 1; k < THREADS * CREW; k++)
        if (*canary(&m->shared, k) != CANARY) return 2;
#endif
    return *m->before != CANARY || *m->after != CANARY ? 2 : 0;
}
