
/* Elements rounded to bfloat16, the upper half of a float; in registers they are floats. A pair lies in one
   word, the first in its low half. */
typedef uint16_t bf16;
typedef uint32_t pair;

static inline float widened(bf16 x) { return floats_1((uint32_t)x << 16); }
static inline pair pair_at(const bf16 *x)
{
    pair two;
    memcpy(&two, x, sizeof two);
    return two;
}

static inline v1 load_1(const bf16 *x) { return widened(*x); }

#define PAIRS(N)                                                                                 \
    typedef uint32_t p##N __attribute__((vector_size(4 * N), aligned(4), may_alias));            \
    typedef bf16 h##N __attribute__((vector_size(2 * N), aligned(2), may_alias));                \
    INLINE v##N load_##N(const bf16 *x)                                                          \
    {                                                                                            \
        return FLOATS_##N(__builtin_convertvector(*(const h##N *)x, i##N) << 16);                \
    }
PAIRS(4)

/* dot: to the lanes of s, the products of pairs of a and w. EVERY: a pair in every lane; FIRST: the first
   lanes of a longer vector. */
#define EVERY_1(a) (a)
#define FIRST_4_1(a) ((a)[0])
#if defined(__AVX512BF16__)
#define EVERY_4(a) ((i4)_mm_set1_epi32((int)(a)))
#define EVERY_8(a) ((i8)_mm256_set1_epi32((int)(a)))
#define EVERY_16(a) ((i16)_mm512_set1_epi32((int)(a)))
#define FIRST_8_4(a) ((i4)_mm256_castsi256_si128((__m256i)(a)))
#define FIRST_8_1(a) ((a)[0])
#define FIRST_16_8(a) ((i8)_mm512_castsi512_si256((__m512i)(a)))
#define FIRST_16_4(a) ((i4)_mm512_castsi512_si128((__m512i)(a)))
#define FIRST_16_1(a) ((a)[0])
static inline bf16 rounded(float x)
{
    return (bf16)_mm_extract_epi16((__m128i)_mm_cvtneps_pbh(_mm_set_ss(x)), 0);
}
INLINE v4 dot_4(v4 s, i4 a, i4 w) { return (v4)_mm_dpbf16_ps((__m128)s, (__m128bh)a, (__m128bh)w); }
INLINE v8 dot_8(v8 s, i8 a, i8 w) { return (v8)_mm256_dpbf16_ps((__m256)s, (__m256bh)a, (__m256bh)w); }
INLINE v16 dot_16(v16 s, i16 a, i16 w) { return (v16)_mm512_dpbf16_ps((__m512)s, (__m512bh)a, (__m512bh)w); }
INLINE void store_4(bf16 *y, v4 x)
{
    _mm_storel_epi64((__m128i *)(void *)y, (__m128i)_mm_cvtneps_pbh((__m128)x));
}
INLINE void store_8(bf16 *y, v8 x)
{
    _mm_storeu_si128((__m128i *)(void *)y, (__m128i)_mm256_cvtneps_pbh((__m256)x));
}
INLINE void store_16(bf16 *y, v16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)y, (__m256i)_mm512_cvtneps_pbh((__m512)x));
}
INLINE v8 load_8(const bf16 *x)
{
    return (v8)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)x)),
                                 16);
}
INLINE v16 load_16(const bf16 *x)
{
    return (v16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)x)),
                                  16);
}
/* 1 / (1 + 2^t) with a polynomial of degree 3 (7.5e-5) and an estimate of 14 bits: off by 2^-13 of the
   result, where 2^-9 is rounding. */
INLINE v16 short_sigmoid_16(v16 x)
{
    const v16 t = min_16(max_16(x * SPLAT_16(-1.44269504f), SPLAT_16(-126.0f)), SPLAT_16(126.0f));
    const v16 n = t + SPLAT_16(12582912.0f), f = t - (n - SPLAT_16(12582912.0f));
    v16 p = SPLAT_16(0.0551714934f) * f + SPLAT_16(0.2426109314f);
    p = p * f + SPLAT_16(0.6932609677f);
    p = p * f + SPLAT_16(0.9999280572f);
    p = (v16)((i16)p + ((i16)n << 23));
    return (v16)_mm512_rcp14_ps((__m512)(SPLAT_16(1.0f) + p));
}
INLINE v16 short_swish_16(v16 x) { return x * short_sigmoid_16(x); }
#define sigmoid_16 short_sigmoid_16
#define swish_16 short_swish_16

/* For depthwise convolutions: 32 elements, or zeros; and sums of 32 channels, brought back to their order. */
INLINE __m512i present(__mmask32 some, const bf16 *x) { return _mm512_maskz_loadu_epi16(some, x); }
INLINE v16 first_16(v16 low, v16 high)
{
    const __m512i from = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    return (v16)_mm512_permutex2var_ps((__m512)low, from, (__m512)high);
}
INLINE v16 second_16(v16 low, v16 high)
{
    const __m512i from = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    return (v16)_mm512_permutex2var_ps((__m512)low, from, (__m512)high);
}
typedef uint32_t p8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t p16 __attribute__((vector_size(64), aligned(4), may_alias));
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <arm_neon.h>
static inline bf16 rounded(float x)
{
    const bfloat16_t y = vcvth_bf16_f32(x);
    bf16 bits;
    memcpy(&bits, &y, sizeof bits);
    return bits;
}
#define EVERY_4(a) ((i4)vdupq_n_u32(a))
INLINE v4 dot_4(v4 s, i4 a, i4 w)
{
    return (v4)vbfdotq_f32((float32x4_t)s, vreinterpretq_bf16_u32((uint32x4_t)a),
                           vreinterpretq_bf16_u32((uint32x4_t)w));
}
INLINE void store_4(bf16 *y, v4 x) { vst1_u16(y, vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)x))); }
#else
#error "bf16: the target has no arithmetic for it"
#endif
typedef pair p1;

/* Pairs of what lies at a and at b. */
#define JOINED(N)                                             \
    INLINE i##N joined_##N(const bf16 *a, const bf16 *b)      \
    {                                                         \
        return ((i##N)load_##N(a) >> 16) | (i##N)load_##N(b); \
    }
static inline pair joined_1(const bf16 *a, const bf16 *b) { return (pair)*a | (pair)*b << 16; }
JOINED(4)
#if LANES >= 16
JOINED(8)
JOINED(16)
#endif
static inline void store_1(bf16 *y, v1 x) { *y = rounded(x); }
static inline v1 dot_1(v1 s, i1 a, i1 w)
{
    return s + floats_1(a << 16) * floats_1(w << 16) + floats_1(a & 0xffff0000u) * floats_1(w & 0xffff0000u);
}

static inline void narrow(bf16 *to, const float *from, size_t n)
{
    size_t k = 0;
#if LANES >= 16
    for (; k + 16 <= n; k += 16) store_16(to + k, *(const u16 *)(from + k));
#endif
    for (; k + 4 <= n; k += 4) store_4(to + k, *(const u4 *)(from + k));
    for (; k < n; k++) to[k] = rounded(from[k]);
}

static inline void widen(float *to, const bf16 *from, size_t n)
{
    size_t k = 0;
#if LANES >= 16
    for (; k + 16 <= n; k += 16) *(u16 *)(to + k) = load_16(from + k);
#endif
    for (; k + 4 <= n; k += 4) *(u4 *)(to + k) = load_4(from + k);
    for (; k < n; k++) to[k] = widened(from[k]);
}
