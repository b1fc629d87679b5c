/* Vectors of floats, and the functions on them that fused operators need. One lane is a plain float. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline)) /* a call would spill all vectors */
/* Inlined, sums of a tile would be kept in memory for want of registers. */
#define APART static __attribute__((noinline))
/* Once it has chosen induction variables, GCC 12 may take a function whose stores go by them for one that
   writes nothing, and drop its calls. */
#define WRITTEN() __asm__ volatile("" ::: "memory")
/* Asks for the line of the cache at an address, wherever that is, up to the second-level cache. */
#define FETCH(address) __builtin_prefetch(address, 0, 2)
#else
#define WRITTEN()
#define FETCH(address) (void)(address)
#define INLINE static inline
#define APART static
#endif
#if defined(_OPENMP) || defined(__GNUC__)
#define PRAGMA(text) _Pragma(#text)
#define EACH PRAGMA(omp simd) /* turns of the loop do not depend on one another, */
#define EACH_FOLDED(reductions) PRAGMA(omp simd reductions) /* but for sums and the like */
#else
#define EACH
#define EACH_FOLDED(reductions)
#endif
#define EXP_HIGH 88.722835540771484375f
#define EXP_LOW -87.3365478515625f
#define LOG2_E 1.44269504088896341f
#define EXP_SHIFT 12582912.0f /* 1.5 * 2^23 */

/* bounded: to -127 .. 127; what is not a number may become 127. max, min: a where one is not a number; most,
   least: what is not a number where one is not. */
#define MATH(N)                                                                                              \
    static inline v##N max_##N(v##N a, v##N b) { return LARGER_##N(a, b); }                                  \
    static inline v##N min_##N(v##N a, v##N b) { return SMALLER_##N(a, b); }                                 \
    static inline v##N most_##N(v##N a, v##N b) { return SELECT_##N(b == b, max_##N(a, b), b); }             \
    static inline v##N least_##N(v##N a, v##N b) { return SELECT_##N(b == b, min_##N(a, b), b); }            \
    static inline v##N within_##N(v##N x, float limit)                                                       \
    {                                                                                                        \
        return min_##N(max_##N(x, SPLAT_##N(-limit)), SPLAT_##N(limit));                                     \
    }                                                                                                        \
    static inline v##N abs_##N(v##N x) { return SELECT_##N(x < SPLAT_##N(0.0f), -x, x); }                    \
    static inline v##N bounded_##N(v##N x) { return within_##N(x, 127.0f); }

/* e^x = 2^n e^r, n the whole number nearest x / ln 2; a sum with 1.5 * 2^23 has n in its last bits. raised:
   of that sum and r, by a polynomial of degree 6. exp_of_sum: e^(x + y) for sums from -87 to 88, y what was
   lost of x. power_of_2: 2^x for x from -127 (which gives 0) to 127. swish: x times its sigmoid. */
#define EXPONENTIALS(N)                                                                                      \
    INLINE v##N raised_##N(v##N shifted, v##N r)                                                             \
    {                                                                                                        \
        v##N p = SPLAT_##N(1.381461858e-3f) * r + SPLAT_##N(8.368713781e-3f);                                \
        p = p * r + SPLAT_##N(4.166838899e-2f);                                                              \
        p = p * r + SPLAT_##N(1.666652113e-1f);                                                              \
        p = p * r + SPLAT_##N(4.999999404e-1f);                                                              \
        p = (p * r) * r + (r + SPLAT_##N(1.0f));                                                             \
        return FLOATS_##N(BITS_##N(p) + (BITS_##N(shifted) << 23));                                          \
    }                                                                                                        \
    INLINE v##N exp_##N(v##N x)                                                                              \
    {                                                                                                        \
        const v##N t = min_##N(max_##N(x, SPLAT_##N(EXP_LOW)), SPLAT_##N(EXP_HIGH));                         \
        const v##N shifted = t * SPLAT_##N(LOG2_E) + SPLAT_##N(EXP_SHIFT),                                   \
                   n = shifted - SPLAT_##N(EXP_SHIFT);                                                       \
        v##N y = raised_##N(shifted, (t - n * SPLAT_##N(0.693359375f)) + n * SPLAT_##N(2.12194440e-4f));     \
        y = SELECT_##N(x < SPLAT_##N(EXP_LOW), SPLAT_##N(0.0f), y);                                          \
        return SELECT_##N(x > SPLAT_##N(EXP_HIGH), SPLAT_##N(INFINITY), y);                                  \
    }                                                                                                        \
    INLINE v##N exp_of_sum_##N(v##N x, v##N y)                                                               \
    {                                                                                                        \
        const v##N shifted = (x + y) * SPLAT_##N(LOG2_E) + SPLAT_##N(EXP_SHIFT),                             \
                   n = shifted - SPLAT_##N(EXP_SHIFT);                                                       \
        return raised_##N(shifted, ((x - n * SPLAT_##N(0.693359375f)) + y) + n * SPLAT_##N(2.12194440e-4f)); \
    }                                                                                                        \
    INLINE v##N power_of_2_##N(v##N x)                                                                       \
    {                                                                                                        \
        const v##N shifted = x + SPLAT_##N(EXP_SHIFT);                                                       \
        return raised_##N(shifted,                                                                           \
                          (x - (shifted - SPLAT_##N(EXP_SHIFT))) * SPLAT_##N(0.693147182464599609375f));     \
    }                                                                                                        \
    INLINE v##N sigmoid_##N(v##N x) { return SPLAT_##N(1.0f) / (SPLAT_##N(1.0f) + exp_##N(-x)); }            \
    INLINE v##N swish_##N(v##N x) { return x / (SPLAT_##N(1.0f) + exp_##N(-x)); }

typedef float v1;
#if LANES > 1 /* as the other lanes: equal elements have equal results */
typedef float w1;
#define WIDE_1(x) (x)
#else
typedef double w1; /* for polynomials: one lane costs no more in double */
#define WIDE_1(x) ((double)(x))
#endif
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
/* A sum plus a product, rounded once where vectors are. Of s + a * b, GCC may put several products in one
   vector and add them one by one, which rounds twice. */
#if LANES > 1 && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__riscv_f))
#define ADDED_1(s, a, b) __builtin_fmaf(a, b, s)
#else
#define ADDED_1(s, a, b) ((s) + (a) * (b))
#endif
#define LARGER_1(a, b) ((a) < (b) ? (b) : (a))
#define SMALLER_1(a, b) ((a) > (b) ? (b) : (a))
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
    typedef v##N w##N;                                                             \
    typedef float u##N __attribute__((vector_size(4 * N), aligned(4), may_alias)); \
    typedef uint32_t i##N __attribute__((vector_size(4 * N)));
#ifdef __AVX__ /* one instruction in place of four, without the headers that it would take long to read */
#define LARGER_4(a, b) ((v4)__builtin_ia32_maxps(b, a))
#define SMALLER_4(a, b) ((v4)__builtin_ia32_minps(b, a))
#define LARGER_8(a, b) ((v8)__builtin_ia32_maxps256(b, a))
#define SMALLER_8(a, b) ((v8)__builtin_ia32_minps256(b, a))
#else
#define LARGER_4(a, b) SELECT_4((a) < (b), b, a)
#define SMALLER_4(a, b) SELECT_4((a) > (b), b, a)
#define LARGER_8(a, b) SELECT_8((a) < (b), b, a)
#define SMALLER_8(a, b) SELECT_8((a) > (b), b, a)
#endif
#define SPLAT_4(x) ((x) - (v4){0})
#define WIDE_4(x) SPLAT_4(x)
#define BITS_4(x) ((i4)(x))
#define FLOATS_4(x) ((v4)(x))
#define SELECT_4(mask, a, b) ((v4)(((i4)(mask) & (i4)(a)) | (~(i4)(mask) & (i4)(b))))
VECTOR(4)
MATH(4)
ACROSS(4)
#endif
#if LANES > 4
#define SPLAT_8(x) ((x) - (v8){0})
#define WIDE_8(x) SPLAT_8(x)
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
#define WIDE_16(x) SPLAT_16(x)
#define BITS_16(x) ((i16)(x))
#define FLOATS_16(x) ((v16)(x))
#define SELECT_16(mask, a, b) ((v16)(((i16)(mask) & (i16)(a)) | (~(i16)(mask) & (i16)(b))))
VECTOR(16)

/* a where one is not a number. */
static inline v16 max_16(v16 a, v16 b) { return (v16)_mm512_max_ps((__m512)b, (__m512)a); }
static inline v16 min_16(v16 a, v16 b) { return (v16)_mm512_min_ps((__m512)b, (__m512)a); }
static inline v16 most_16(v16 a, v16 b) { return SELECT_16(b == b, max_16(a, b), b); }
static inline v16 least_16(v16 a, v16 b) { return SELECT_16(b == b, min_16(a, b), b); }
static inline v16 within_16(v16 x, float limit)
{
    return min_16(max_16(x, SPLAT_16(-limit)), SPLAT_16(limit));
}
static inline v16 sqrt_16(v16 x) { return (v16)_mm512_sqrt_ps((__m512)x); }
static inline float sum_16(v16 x) { return _mm512_reduce_add_ps((__m512)x); }
static inline float largest_16(v16 x) { return _mm512_reduce_max_ps((__m512)x); }
static inline v16 abs_16(v16 x) { return (v16)_mm512_abs_ps((__m512)x); }

#define LN_2 0.693147182464599609375f /* as a float */
#define SHIFT_16 393216.0f /* 1.5 * 2^18 */

/* 2^(k / 32); and the bits of half of it, less k << 18: adding those of n + k / 32, shifted by 18, adds n to
   the exponent. */
static const float ROOTS[32] = {
    1.0f, 1.0218972f, 1.04427373f, 1.06714046f, 1.09050775f, 1.1143868f, 1.13878858f, 1.1637249f,
    1.18920708f, 1.21524739f, 1.24185777f, 1.26905096f, 1.29683959f, 1.32523668f, 1.35425556f, 1.38390994f,
    1.41421354f, 1.44518077f, 1.47682619f, 1.50916445f, 1.54221082f, 1.5759809f, 1.61049032f, 1.64575553f,
    1.68179286f, 1.71861935f, 1.75625217f, 1.79470909f, 1.8340081f, 1.87416768f, 1.91520655f, 1.95714414f,
};
static const uint32_t HALVES[32] = {
    0x3f000001, 0x3efecd87, 0x3efdaac4, 0x3efc980f, 0x3efb95c3, 0x3efaa43a, 0x3ef9c3d4, 0x3ef8f4f1,
    0x3ef837f1, 0x3ef78d3b, 0x3ef6f533, 0x3ef67044, 0x3ef5fed8, 0x3ef5a15c, 0x3ef55840, 0x3ef523f7,
    0x3ef504f4, 0x3ef4fbb0, 0x3ef508a5, 0x3ef52c4e, 0x3ef5672b, 0x3ef5b9bf, 0x3ef6248d, 0x3ef6a81f,
    0x3ef744fe, 0x3ef7fbb9, 0x3ef8cce0, 0x3ef9b908, 0x3efac0c8, 0x3efbe4bb, 0x3efd257f, 0x3efe83b4,
};

/* e^x = 2^n e^r, n the multiple of 1 / 32 nearest x / ln 2; a sum with 1.5 * 2^18 has 32 n in its last bits.
   e^r by a polynomial of degree 2. */
INLINE v16 raised_16(v16 shifted, v16 r)
{
    const v16 root =
        (v16)_mm512_permutex2var_ps(_mm512_loadu_ps(ROOTS), (__m512i)shifted, _mm512_loadu_ps(ROOTS + 16));
    const v16 p = r * (r * SPLAT_16(0.5f) + SPLAT_16(1.00001466f));
    return (v16)_mm512_scalef_ps((__m512)(root * p + root), (__m512)(shifted - SPLAT_16(SHIFT_16)));
}

INLINE v16 exp_16(v16 x)
{
    const v16 t = min_16(max_16(x, SPLAT_16(-104.0f)), SPLAT_16(89.0f));
    const v16 shifted = t * SPLAT_16(LOG2_E) + SPLAT_16(SHIFT_16), n = shifted - SPLAT_16(SHIFT_16);
    return raised_16(shifted, (t - n * SPLAT_16(LN_2)) + n * SPLAT_16(1.904654300e-9f));
}

INLINE v16 exp_of_sum_16(v16 x, v16 y)
{
    const v16 shifted = (x + y) * SPLAT_16(LOG2_E) + SPLAT_16(SHIFT_16), n = shifted - SPLAT_16(SHIFT_16);
    /* Were x a product, compilers might round the other one. */
    const v16 r = (v16)_mm512_fnmadd_ps((__m512)n, (__m512)SPLAT_16(LN_2), (__m512)x);
    return raised_16(shifted, (r + y) + n * SPLAT_16(1.904654300e-9f));
}

/* As power_of_2 of other widths, in three multiply-adds. ROOT_BITS: of ROOTS, less k << 18. */
static const uint32_t ROOT_BITS[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3,
};

/* The lesser magnitude. */
static inline v16 bounded_16(v16 x) { return (v16)_mm512_range_ps((__m512)x, (__m512)SPLAT_16(127.0f), 2); }

INLINE v16 power_of_2_16(v16 x)
{
    const v16 shifted = x + SPLAT_16(SHIFT_16), r = x - (shifted - SPLAT_16(SHIFT_16));
    const i16 root = (i16)_mm512_permutex2var_epi32(_mm512_loadu_si512(ROOT_BITS), (__m512i)shifted,
                                                    _mm512_loadu_si512(ROOT_BITS + 16));
    const v16 power = FLOATS_16(root + (BITS_16(shifted) << 18));
    return (power * r) * (r * SPLAT_16(0.24022651f) + SPLAT_16(0.69315734f)) + power;
}

/* 1 + e^-x for x from -89 (infinity) to 87, in four multiply-adds: e^r is half of (1 + r)^2 + 1. What LN_2 is
   off by counts n times; HALVES are 1.5 * 2^-24 too large, so that half of that is lost where n is large,
   half where it is small. */
INLINE v16 one_and_exp_16(v16 x)
{
    const v16 shifted = SPLAT_16(SHIFT_16) - x * SPLAT_16(LOG2_E), n = shifted - SPLAT_16(SHIFT_16);
    const v16 s = (-x - n * SPLAT_16(LN_2)) + SPLAT_16(1.00001466f), twice = s * s + SPLAT_16(0.99997068f);
    const i16 half = (i16)_mm512_permutex2var_epi32(_mm512_loadu_si512(HALVES), (__m512i)shifted,
                                                    _mm512_loadu_si512(HALVES + 16));
    return FLOATS_16(half + (BITS_16(shifted) << 18)) * twice + SPLAT_16(1.0f);
}

INLINE v16 sigmoid_16(v16 x)
{
    return SPLAT_16(1.0f) / one_and_exp_16(min_16(max_16(x, SPLAT_16(-89.0f)), SPLAT_16(87.0f)));
}

INLINE v16 swish_16(v16 x)
{
    return x / one_and_exp_16(min_16(max_16(x, SPLAT_16(-89.0f)), SPLAT_16(87.0f)));
}

/* Fewer lanes are computed as 16: equal elements have equal results, whole vectors or what is left. */
#define WIDENED_1(x) ((v16)_mm512_set1_ps(x))
#define WIDENED_4(x) ((v16)_mm512_zextps128_ps512((__m128)(x)))
#define WIDENED_8(x) ((v16)_mm512_zextps256_ps512((__m256)(x)))
#define NARROWED_1(x) ((x)[0])
#define NARROWED_4(x) ((v4)_mm512_castps512_ps128((__m512)(x)))
#define NARROWED_8(x) ((v8)_mm512_castps512_ps256((__m512)(x)))
#define BY_16_LANES(N)                                                                                       \
    INLINE v##N exp_##N(v##N x) { return NARROWED_##N(exp_16(WIDENED_##N(x))); }                             \
    INLINE v##N exp_of_sum_##N(v##N x, v##N y)                                                               \
    {                                                                                                        \
        return NARROWED_##N(exp_of_sum_16(WIDENED_##N(x), WIDENED_##N(y)));                                  \
    }                                                                                                        \
    INLINE v##N power_of_2_##N(v##N x) { return NARROWED_##N(power_of_2_16(WIDENED_##N(x))); }               \
    INLINE v##N sigmoid_##N(v##N x) { return NARROWED_##N(sigmoid_16(WIDENED_##N(x))); }                     \
    INLINE v##N swish_##N(v##N x) { return NARROWED_##N(swish_16(WIDENED_##N(x))); }
BY_16_LANES(1)
BY_16_LANES(4)
BY_16_LANES(8)
#else
EXPONENTIALS(1)
#if LANES > 1
EXPONENTIALS(4)
#endif
#if LANES > 4
EXPONENTIALS(8)
#endif
#endif

/* Rational functions of least largest relative error: tanh and erf up to where they round to 1; gelu, x times
   the normal distribution F, by F(-a) = e^(-a^2 / 2) R(a), a^2 in two parts. log(1 + z) =
   2 artanh(z / (2 + z)), by its series to the 13th power; tanh(log(1 + e)) = n / (n + 2), n = e (e + 2).
   nothing: 0, but no number for -infinity, which times F is none. */
#define SMOOTH(N)                                                                                            \
    static inline v##N nothing_##N(v##N x) { return min_##N(x, SPLAT_##N(0.0f)) * SPLAT_##N(0.0f); }         \
    INLINE v##N tanh_##N(v##N x)                                                                             \
    {                                                                                                        \
        const w##N a = (w##N)within_##N(x, 9.02f), z = a * a;                                                \
        w##N p = WIDE_##N(1.33189078e-8f) * z + WIDE_##N(2.05833585e-5f);                                    \
        p = p * z + WIDE_##N(3.49402707e-3f);                                                                \
        p = p * z + WIDE_##N(1.33797124e-1f);                                                                \
        w##N q = WIDE_##N(7.76195066e-7f) * z + WIDE_##N(3.28308059e-4f);                                    \
        q = q * z + WIDE_##N(2.5871044e-2f);                                                                 \
        q = q * z + WIDE_##N(4.67130274e-1f);                                                                \
        return within_##N((v##N)(((p * z) * a + a) / (q * z + WIDE_##N(1.0f))), 1.0f);                       \
    }                                                                                                        \
    INLINE v##N erf_##N(v##N x)                                                                              \
    {                                                                                                        \
        const w##N a = (w##N)within_##N(x, 3.93f), z = a * a;                                                \
        w##N p = WIDE_##N(2.57232659e-6f) * z + WIDE_##N(3.58778721e-4f);                                    \
        p = p * z + WIDE_##N(4.76120738e-3f);                                                                \
        p = p * z + WIDE_##N(6.65011331e-2f);                                                                \
        p = p * z + WIDE_##N(2.40334049e-1f);                                                                \
        p = p * z + WIDE_##N(1.42144954f);                                                                   \
        w##N q = WIDE_##N(4.78746442e-5f) * z + WIDE_##N(1.46783178e-3f);                                    \
        q = q * z + WIDE_##N(1.88925397e-2f);                                                                \
        q = q * z + WIDE_##N(1.43932655e-1f);                                                                \
        q = q * z + WIDE_##N(6.32898688e-1f);                                                                \
        return within_##N((v##N)(a * p / (q * z + WIDE_##N(1.25972688f))), 1.0f);                            \
    }                                                                                                        \
    INLINE v##N gelu_##N(v##N x)                                                                             \
    {                                                                                                        \
        const v##N v = abs_##N(within_##N(x, 13.2f)), h = FLOATS_##N(BITS_##N(v) & 0xfffff000),              \
                   rest = (v - h) * (v + h);                                                                 \
        const w##N a = (w##N)v, e = (w##N)exp_of_sum_##N(h * h * SPLAT_##N(-0.5f), rest * SPLAT_##N(-0.5f)); \
        w##N p = WIDE_##N(4.47944319e-3f) * a + WIDE_##N(4.45518121e-2f);                                    \
        p = p * a + WIDE_##N(2.02018425e-1f);                                                                \
        p = p * a + WIDE_##N(4.85456884e-1f);                                                                \
        p = p * a + WIDE_##N(5.57116926e-1f);                                                                \
        w##N q = WIDE_##N(1.12281395e-2f) * a + WIDE_##N(1.11683056e-1f);                                    \
        q = q * a + WIDE_##N(5.17429054e-1f);                                                                \
        q = q * a + WIDE_##N(1.33093607f);                                                                   \
        q = q * a + WIDE_##N(1.85994411f);                                                                   \
        return max_##N(x, SPLAT_##N(0.0f)) - (v##N)(a * p / (q * a + WIDE_##N(1.11423385f)) * e) +           \
               nothing_##N(x);                                                                               \
    }                                                                                                        \
    INLINE v##N gelu_tanh_##N(v##N x)                                                                        \
    {                                                                                                        \
        const v##N a = within_##N(x, 10.0f), h = FLOATS_##N(BITS_##N(a) & 0xfffff000), square = h * h,       \
                   rest = (a - h) * (a + h);                                                                 \
        const v##N c = square * SPLAT_##N(0.0713548139f) + SPLAT_##N(1.59576912f),                           \
                   d = FLOATS_##N(BITS_##N(c) & 0xfffff000);                                                 \
        const w##N most = (w##N)square * WIDE_##N(0.0713548139f) - (w##N)(d - SPLAT_##N(1.59570312f));       \
        const v##N left = (v##N)most + (a * a * SPLAT_##N(2.3988324e-09f) +                                  \
                                        (rest * SPLAT_##N(0.0713548139f) + SPLAT_##N(6.59966057e-05f)));     \
        const v##N e = exp_of_sum_##N(-h * d, -(h * left + (a - h) * (d + left)));                           \
        return max_##N(x, SPLAT_##N(-10.0f)) / (SPLAT_##N(1.0f) + e) + nothing_##N(x);                       \
    }                                                                                                        \
    INLINE v##N hard_swish_##N(v##N x)                                                                       \
    {                                                                                                        \
        return x * SPLAT_##N(1.0f / 6) *                                                                     \
               max_##N(min_##N(x + SPLAT_##N(3.0f), SPLAT_##N(6.0f)), SPLAT_##N(0.0f));                      \
    }                                                                                                        \
    INLINE v##N softplus_##N(v##N x)                                                                         \
    {                                                                                                        \
        const v##N z = exp_##N(-abs_##N(x)), s = z / (SPLAT_##N(2.0f) + z), t = s * s;                       \
        v##N p = t * SPLAT_##N(2.0f / 13) + SPLAT_##N(2.0f / 11);                                            \
        p = p * t + SPLAT_##N(2.0f / 9);                                                                     \
        p = p * t + SPLAT_##N(2.0f / 7);                                                                     \
        p = p * t + SPLAT_##N(2.0f / 5);                                                                     \
        p = p * t + SPLAT_##N(2.0f / 3);                                                                     \
        return max_##N(x, SPLAT_##N(0.0f)) + s * (p * t + SPLAT_##N(2.0f));                                  \
    }                                                                                                        \
    INLINE v##N mish_##N(v##N x)                                                                             \
    {                                                                                                        \
        const v##N e = exp_##N(min_##N(x, SPLAT_##N(20.0f))), n = e * (e + SPLAT_##N(2.0f));                 \
        return x * (n / (n + SPLAT_##N(2.0f)));                                                              \
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

/* Elements of four bytes: to[c * to_step + r] = from[r * from_step + c] for all rows r, and columns c from
   `first` up to `stop`. */
#ifdef __GNUC__
typedef uint32_t word __attribute__((may_alias));
#else
typedef uint32_t word;
#endif
static void transpose_block(word *to, const word *from, int rows, int columns, int to_step, int from_step)
{
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++) to[(ptrdiff_t)c * to_step + r] = from[(ptrdiff_t)r * from_step + c];
}
#if LANES > 8
static void transpose_16(word *to, const word *from, int to_step, int from_step)
{
    __m512 a[16], b[16];
    for (int k = 0; k < 16; k++) a[k] = _mm512_loadu_ps(from + (ptrdiff_t)k * from_step);
    for (int k = 0; k < 16; k += 2) {
        b[k] = _mm512_unpacklo_ps(a[k], a[k + 1]);
        b[k + 1] = _mm512_unpackhi_ps(a[k], a[k + 1]);
    }
    for (int k = 0; k < 16; k += 4)
        for (int i = 0; i < 2; i++) {
            const __m512d low = _mm512_castps_pd(b[k + i]), high = _mm512_castps_pd(b[k + i + 2]);
            a[k + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[k + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    for (int k = 0; k < 16; k += 8)
        for (int i = 0; i < 4; i++) {
            b[k + i] = _mm512_shuffle_f32x4(a[k + i], a[k + i + 4], 0x88);
            b[k + i + 4] = _mm512_shuffle_f32x4(a[k + i], a[k + i + 4], 0xdd);
        }
    for (int i = 0; i < 8; i++) {
        _mm512_storeu_ps(to + (ptrdiff_t)i * to_step, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_ps(to + (ptrdiff_t)(i + 8) * to_step, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
    }
}
#endif
static inline void transpose_words(void *to, const void *from, int rows, int first, int stop, int to_step,
                                   int from_step)
{
    word *y = (word *)to;
    const word *x = (const word *)from;
    for (int r = 0; r < rows; r += 16) {
        const int height = rows - r < 16 ? rows - r : 16;
        for (int c = first; c < stop; c += 16) {
            const int width = stop - c < 16 ? stop - c : 16;
            word *there = y + (ptrdiff_t)c * to_step + r;
            const word *here = x + (ptrdiff_t)r * from_step + c;
#if LANES > 8
            if (height == 16 && width == 16) {
                transpose_16(there, here, to_step, from_step);
                continue;
            }
#endif
            transpose_block(there, here, height, width, to_step, from_step);
        }
    }
}

#define CANARY UINT64_C(0x5ca1ab1eb01dface)

/* What a thread knows. All threads run the same code; each makes its share, and they wait for one another
   where operators end. */
typedef struct crew crew;
struct chip;
typedef struct {
    const float *weights;
    const void *const *inputs; /* of this run */
    void *const *outputs;
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

static inline context with_ends(const context *m, const void *const *inputs, void *const *outputs)
{
    context here = *m;
    here.inputs = inputs;
    here.outputs = outputs;
    return here;
}

#if THREADS == 1
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

/* Reals as integers, toward zero. What does not fit becomes what x86 makes of it: the smallest integer, or 0
   beyond the largest uint64_t. */
static inline int32_t to_int32(double x)
{
    return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN;
}
static inline int64_t to_int64(double x)
{
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN;
}
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
