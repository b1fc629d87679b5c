/* Vectors of floats, and the functions on them that fused operators need. A vector of one lane is a plain float. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline)) /* a call would spill all vectors */
#define APART static __attribute__((noinline)) /* inlined, sums of a tile would be kept in memory for want of registers */
/* Once it has chosen induction variables, GCC 12 may take a function whose stores go by them for one that writes nothing, and drop its calls. */
#define WRITTEN() __asm__ volatile("" ::: "memory")
#else
#define WRITTEN()
#define INLINE static inline
#define APART static
#endif
#define EXP_HIGH 88.722835540771484375f
#define EXP_LOW -87.3365478515625f

/* exp: 2^n times a polynomial of degree 7 on [-ln 2 / 2, ln 2 / 2]. erf: Abramowitz and Stegun 7.1.26, absolute error below 6e-7 in float. */
#define MATH(N)                                                                        \
    static inline v##N max_##N(v##N a, v##N b) { return SELECT_##N(a < b, b, a); }     \
    static inline v##N min_##N(v##N a, v##N b) { return SELECT_##N(a > b, b, a); }     \
    INLINE v##N exp_##N(v##N x)                                                 \
    {                                                                                  \
        v##N t = min_##N(max_##N(x, SPLAT_##N(EXP_LOW)), SPLAT_##N(EXP_HIGH));         \
        v##N n = t * SPLAT_##N(1.44269504088896341f) + SPLAT_##N(12582912.0f);         \
        i##N shift = BITS_##N(n) << 23;                                                \
        n = n - SPLAT_##N(12582912.0f);                                                \
        v##N r = (t - n * SPLAT_##N(0.693359375f)) + n * SPLAT_##N(2.12194440e-4f);    \
        v##N p = SPLAT_##N(1.9875691500e-4f);                                          \
        p = p * r + SPLAT_##N(1.3981999507e-3f);                                       \
        p = p * r + SPLAT_##N(8.3334519073e-3f);                                       \
        p = p * r + SPLAT_##N(4.1665795894e-2f);                                       \
        p = p * r + SPLAT_##N(1.6666665459e-1f);                                       \
        p = p * r + SPLAT_##N(5.0000001201e-1f);                                       \
        p = (p * r) * r + (r + SPLAT_##N(1.0f));                                       \
        p = FLOATS_##N(BITS_##N(p) + shift);                                           \
        p = SELECT_##N(x < SPLAT_##N(EXP_LOW), SPLAT_##N(0.0f), p);                    \
        return SELECT_##N(x > SPLAT_##N(EXP_HIGH), SPLAT_##N(INFINITY), p);            \
    }                                                                                  \
    INLINE v##N sigmoid_##N(v##N x)                                             \
    {                                                                                  \
        return SPLAT_##N(1.0f) / (SPLAT_##N(1.0f) + exp_##N(-x));                      \
    }                                                                                  \
    INLINE v##N tanh_##N(v##N x)                                                \
    {                                                                                  \
        return SPLAT_##N(1.0f) - SPLAT_##N(2.0f) / (exp_##N(x + x) + SPLAT_##N(1.0f)); \
    }                                                                                  \
    static inline v##N abs_##N(v##N x) { return SELECT_##N(x < SPLAT_##N(0.0f), -x, x); } \
    INLINE v##N erf_##N(v##N x)                                                 \
    {                                                                                  \
        v##N a = abs_##N(x);                                                           \
        v##N t = SPLAT_##N(1.0f) / (SPLAT_##N(1.0f) + SPLAT_##N(0.3275911f) * a);      \
        v##N p = SPLAT_##N(1.061405429f) * t + SPLAT_##N(-1.453152027f);               \
        p = p * t + SPLAT_##N(1.421413741f);                                           \
        p = p * t + SPLAT_##N(-0.284496736f);                                          \
        p = (p * t + SPLAT_##N(0.254829592f)) * t;                                     \
        p = SPLAT_##N(1.0f) - p * exp_##N(-a * a);                                     \
        return SELECT_##N(x < SPLAT_##N(0.0f), -p, p);                                 \
    }

typedef float v1;
typedef float u1;
typedef uint32_t i1;

static inline uint32_t bits_1(float x)
{
    uint32_t n;
    memcpy(&n, &x, sizeof n);
    return n;
}

static inline float floats_1(uint32_t n)
{
    float x;
    memcpy(&x, &n, sizeof x);
    return x;
}

#define SPLAT_1(x) (x)
#define BITS_1(x) bits_1(x)
#define FLOATS_1(x) floats_1(x)
#define SELECT_1(mask, a, b) ((mask) ? (a) : (b))
MATH(1)

static inline float sqrt_1(float x) { return sqrtf(x); }
static inline float sum_1(float x) { return x; }
static inline float largest_1(float x) { return x; }

#if LANES > 1 /* GCC and Clang */
#define ACROSS(N)                                                                  \
    static inline v##N sqrt_##N(v##N x)                                            \
    {                                                                              \
        for (int k = 0; k < N; k++) x[k] = sqrtf(x[k]);                            \
        return x;                                                                  \
    }                                                                              \
    static inline float sum_##N(v##N x)                                            \
    {                                                                              \
        float s = x[0];                                                            \
        for (int k = 1; k < N; k++) s += x[k];                                     \
        return s;                                                                  \
    }                                                                              \
    static inline float largest_##N(v##N x)                                        \
    {                                                                              \
        float s = x[0];                                                            \
        for (int k = 1; k < N; k++) s = max_1(s, x[k]);                            \
        return s;                                                                  \
    }
#define VECTOR(N)                                                                  \
    typedef float v##N __attribute__((vector_size(4 * N)));                        \
    typedef float u##N __attribute__((vector_size(4 * N), aligned(4), may_alias)); \
    typedef uint32_t i##N __attribute__((vector_size(4 * N)));
#define SPLAT_4(x) ((x) - (v4){0})
#define BITS_4(x) ((i4)(x))
#define FLOATS_4(x) ((v4)(x))
#define SELECT_4(mask, a, b) ((v4)(((i4)(mask) & (i4)(a)) | (~(i4)(mask) & (i4)(b))))
VECTOR(4)
MATH(4)
ACROSS(4)
#endif
#if LANES > 4
#define SPLAT_8(x) ((x) - (v8){0})
#define BITS_8(x) ((i8)(x))
#define FLOATS_8(x) ((v8)(x))
#define SELECT_8(mask, a, b) ((v8)(((i8)(mask) & (i8)(a)) | (~(i8)(mask) & (i8)(b))))
VECTOR(8)
MATH(8)
ACROSS(8)
#endif
#if LANES > 8 /* AVX-512, by its own instructions where those are fewer */
#include <immintrin.h>
#define SPLAT_16(x) ((v16)_mm512_set1_ps(x))
#define SELECT_16(mask, a, b) ((v16)(((i16)(mask) & (i16)(a)) | (~(i16)(mask) & (i16)(b))))
VECTOR(16)

static inline v16 max_16(v16 a, v16 b) { return (v16)_mm512_max_ps((__m512)b, (__m512)a); } /* a where one is not a number */
static inline v16 min_16(v16 a, v16 b) { return (v16)_mm512_min_ps((__m512)b, (__m512)a); }
static inline v16 sqrt_16(v16 x) { return (v16)_mm512_sqrt_ps((__m512)x); }
static inline float sum_16(v16 x) { return _mm512_reduce_add_ps((__m512)x); }
static inline float largest_16(v16 x) { return _mm512_reduce_max_ps((__m512)x); }
static inline v16 abs_16(v16 x) { return (v16)_mm512_abs_ps((__m512)x); }

INLINE v16 exp_16(v16 x)
{
    v16 t = min_16(max_16(x, SPLAT_16(-104.0f)), SPLAT_16(89.0f));
    v16 n = (v16)_mm512_roundscale_ps((__m512)(t * SPLAT_16(1.44269504088896341f)), 0);
    v16 r = (t - n * SPLAT_16(0.693359375f)) + n * SPLAT_16(2.12194440e-4f);
    v16 p = SPLAT_16(1.9875691500e-4f);
    p = p * r + SPLAT_16(1.3981999507e-3f);
    p = p * r + SPLAT_16(8.3334519073e-3f);
    p = p * r + SPLAT_16(4.1665795894e-2f);
    p = p * r + SPLAT_16(1.6666665459e-1f);
    p = p * r + SPLAT_16(5.0000001201e-1f);
    p = (p * r) * r + (r + SPLAT_16(1.0f));
    return (v16)_mm512_scalef_ps((__m512)p, (__m512)n);
}

/* An estimate of 14 bits and one step of Newton's method: 2 units in the last place, for x from 2^-126 to 2^126. */
INLINE v16 inverse_16(v16 x)
{
    v16 y = (v16)_mm512_rcp14_ps((__m512)x);
    return y + y * (SPLAT_16(1.0f) - x * y);
}

INLINE v16 sigmoid_16(v16 x)
{
    return inverse_16(SPLAT_16(1.0f) + exp_16(min_16(-x, SPLAT_16(87.0f))));
}

INLINE v16 tanh_16(v16 x)
{
    return SPLAT_16(1.0f) - SPLAT_16(2.0f) * inverse_16(SPLAT_16(1.0f) + exp_16(min_16(x + x, SPLAT_16(87.0f))));
}

INLINE v16 erf_16(v16 x)
{
    v16 a = min_16(abs_16(x), SPLAT_16(10.0f));
    v16 t = inverse_16(SPLAT_16(1.0f) + SPLAT_16(0.3275911f) * a);
    v16 p = SPLAT_16(1.061405429f) * t + SPLAT_16(-1.453152027f);
    p = p * t + SPLAT_16(1.421413741f);
    p = p * t + SPLAT_16(-0.284496736f);
    p = (p * t + SPLAT_16(0.254829592f)) * t;
    p = SPLAT_16(1.0f) - p * exp_16(-a * a);
    return SELECT_16(x < SPLAT_16(0.0f), -p, p);
}
#endif

/* log(1 + z) = 2 artanh(z / (2 + z)), by its series to the 13th power; tanh(log(1 + e)) = n / (n + 2), n = e (e + 2). */
#define SMOOTH(N)                                                                            \
    INLINE v##N softplus_##N(v##N x)                                                         \
    {                                                                                        \
        const v##N z = exp_##N(-abs_##N(x)), s = z / (SPLAT_##N(2.0f) + z), t = s * s;       \
        v##N p = t * SPLAT_##N(2.0f / 13) + SPLAT_##N(2.0f / 11);                            \
        p = p * t + SPLAT_##N(2.0f / 9);                                                     \
        p = p * t + SPLAT_##N(2.0f / 7);                                                     \
        p = p * t + SPLAT_##N(2.0f / 5);                                                     \
        p = p * t + SPLAT_##N(2.0f / 3);                                                     \
        return max_##N(x, SPLAT_##N(0.0f)) + s * (p * t + SPLAT_##N(2.0f));                  \
    }                                                                                        \
    INLINE v##N mish_##N(v##N x)                                                             \
    {                                                                                        \
        const v##N e = exp_##N(min_##N(x, SPLAT_##N(20.0f))), n = e * (e + SPLAT_##N(2.0f)); \
        return x * (n / (n + SPLAT_##N(2.0f)));                                              \
    }
SMOOTH(1)
#if LANES > 1
SMOOTH(4)
#endif
#if LANES > 4
SMOOTH(8)
#endif
#if LANES > 8
SMOOTH(16)
#endif

#define CANARY UINT64_C(0x5ca1ab1eb01dface)

/* What a thread knows. All threads run the same code; each makes its share, and they wait for one another where operators end. */
typedef struct crew crew;
struct chip;
typedef struct {
    const float *weights;
    float *maps;    /* between groups */
    float *arena;   /* inside groups */
    float *scratch; /* of this thread alone */
    crew *crew;
    struct chip *chip; /* of code that counts */
    double *times;     /* of groups, where those are taken */
    int me;          /* 0 .. THREADS - 1 */
    int first, stop; /* images */
#if THREADS > 1
    float *rings; /* the arena of this thread alone, where it has one */
#endif
} context;

#define WORKERS (THREADS * CREW)
#if WORKERS > 1
#include <pthread.h>
#include <sched.h>

struct crew {
    int arrived;   /* at the end of an operator */
    unsigned turn; /* how often all have arrived */
    int start;     /* 0: wait, 1: run, -1: do not */
};

static inline void pause_turn(int turns)
{
    if (turns >= 1 << 14) {
        sched_yield(); /* there are fewer cores than threads */
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}
#endif

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
    for (int turns = 0; __atomic_load_n(&all->turn, __ATOMIC_ACQUIRE) == turn;) {
        pause_turn(turns);
        turns += turns < 1 << 14;
    }
}
#else
#define FIRST(n) 0
#define STOP(n) (n)
#endif

#ifdef PROFILE
#include <time.h>

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define TIMED(group, call)                                      \
    do {                                                        \
        const double start = seconds();                         \
        call;                                                   \
        if (m->me == 0) m->times[group] = seconds() - start;    \
    } while (0)
#endif

static inline int smaller(int a, int b) { return a < b ? a : b; }
static inline int larger(int a, int b) { return a > b ? a : b; }

/* Reals as integers, toward zero. What does not fit becomes what x86 makes of it: the smallest integer, or 0 beyond the largest uint64_t. */
static inline int32_t to_int32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }
static inline int64_t to_int64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }
static inline uint64_t to_uint64(double x)
{
    if (x >= 9223372036854775808.0) return x < 18446744073709551616.0 ? (uint64_t)x : 0;
    return (uint64_t)to_int64(x);
}

/* a to the power of n, modulo 2^64. */
static inline uint64_t power(uint64_t a, uint64_t n)
{
    uint64_t y = 1;
    for (; n; n >>= 1, a *= a) y *= n & 1 ? a : 1;
    return y;
}

/* An index that may count from the end; -1 if it lies outside 0 .. n - 1. */
static inline int place_of(int64_t i, int n)
{
    i += i < 0 ? n : 0;
    return i >= 0 && i < n ? (int)i : -1;
}

/* An index that may count from the end; the nearest one if it lies outside 0 .. n - 1. */
static inline int nearest_of(int64_t i, int n)
{
    i += i < 0 ? n : 0;
    return i < 0 ? 0 : i < n ? (int)i : n - 1;
}

static inline uint64_t hash_of(const uint64_t *word, size_t words)
{
    uint64_t hash = 0;
    for (size_t k = 0; k < words; k++) hash = hash * UINT64_C(0x9e3779b97f4a7c15) + word[k];
    return hash;
}
