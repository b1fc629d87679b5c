
/* Bytes, 16 of them as int32 sums: AVX-512 with VNNI. See codegen/integer.h for the arithmetic. */
#define FLIP _mm512_set1_epi8(-128) /* int8 as uint8, 128 more */

/* To every int32 of s, four products of bytes of a (0 to 255) and w. Of _mm512_dpbusd_epi32, GCC 12 keeps
   every sum twice, and on the stack. */
#define ADD_PRODUCTS(s, a, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(w))
#define ADD_PAIRS(s, a, w) __asm__("vpdpwssd %2, %1, %0" : "+v"(s) : "v"(a), "v"(w)) /* two, of int16 */

INLINE __m512i four(const void *x) /* bytes, in every lane */
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
}

INLINE __m512i words(const int32_t *x) { return _mm512_loadu_si512((const void *)x); }
INLINE __m512i from_int8(const int8_t *x, __mmask16 some)
{
    return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, x));
}
INLINE __m512i from_uint8(const uint8_t *x, __mmask16 some)
{
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, x));
}
/* 32 bytes as int16, less a zero point; 0 where there are none. */
INLINE __m512i pairs_uint8(const uint8_t *x, __mmask32 some, __m512i zero)
{
    return _mm512_maskz_sub_epi16(some, _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(some, x)), zero);
}
INLINE __m512i pairs_int8(const uint8_t *x, __mmask32 some, __m512i zero)
{
    return _mm512_maskz_sub_epi16(some, _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(some, x)), zero);
}

/* 64 int32 as saturated bytes; of each vector in turn, four go to every lane of 16 bytes. Then in order. */
INLINE __m512i packed_uint8(__m512i a, __m512i b, __m512i c, __m512i d)
{
    return _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}
INLINE __m512i packed_int8(__m512i a, __m512i b, __m512i c, __m512i d)
{
    return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}
INLINE __m512i in_order(__m512i v)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                    v);
}

/* The first so many bytes of v, or some of them, to y; or 16 int32 as bytes. */
INLINE void put_16(void *y, __m512i v) { _mm_storeu_si128(y, _mm512_castsi512_si128(v)); }
INLINE void put_32(void *y, __m512i v) { _mm256_storeu_si256(y, _mm512_castsi512_si256(v)); }
INLINE void put_48(void *y, __m512i v)
{
    put_32(y, v);
    _mm_storeu_si128((void *)((char *)y + 32), _mm512_extracti32x4_epi32(v, 2));
}
INLINE void put_64(void *y, __m512i v) { _mm512_storeu_si512(y, v); }
INLINE void put_some(void *y, __mmask64 some, __m512i v)
{
    if (some == ~UINT64_C(0)) put_64(y, v);
    else _mm512_mask_storeu_epi8(y, some, v);
}
INLINE void put_16_int8(void *y, __m512i v) { _mm_storeu_si128(y, _mm512_cvtsepi32_epi8(v)); }
INLINE void put_16_uint8(void *y, __m512i v)
{
    _mm_storeu_si128(y, _mm512_cvtusepi32_epi8(_mm512_max_epi32(v, _mm512_setzero_si512())));
}

/* Sums times multipliers, divided by 2^shift and rounded, and a zero point added, where no halves come:
   `less` holds shifts less one, `up` is 2 * zero point + 1. Results are known to fit.
   floor((floor(p / 2^(shift - 1)) + 1) / 2) is floor((p + 2^(shift - 1)) / 2^shift). */
INLINE __m512i rescaled_16(__m512i sum, __m512i multiplier, __m512i less, int up)
{
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    const __m512i even = _mm512_srav_epi64(_mm512_mul_epi32(sum, multiplier), _mm512_and_si512(less, low));
    const __m512i odd =
        _mm512_srav_epi64(_mm512_mul_epi32(_mm512_srli_epi64(sum, 32), _mm512_srli_epi64(multiplier, 32)),
                          _mm512_srli_epi64(less, 32));
    const __m512i both = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
    return _mm512_srai_epi32(_mm512_add_epi32(both, _mm512_set1_epi32(up)), 1);
}

/* v / 2^by, to nearest, halves to even. */
INLINE __m512i rounded_16(__m512i v, int by)
{
    const __m512i odd = _mm512_and_si512(_mm512_srai_epi32(v, (unsigned)by), _mm512_set1_epi32(1));
    const __m512i less = _mm512_set1_epi32((int)((1u << (by - 1)) - 1));
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_add_epi32(v, less), odd), (unsigned)by);
}

INLINE __m512i rounded_8(__m512i v, __m512i by) /* the same of int64 */
{
    const __m512i one = _mm512_set1_epi64(1);
    const __m512i odd = _mm512_and_si512(_mm512_srav_epi64(v, by), one);
    const __m512i less = _mm512_sub_epi64(_mm512_sllv_epi64(one, _mm512_sub_epi64(by, one)), one);
    return _mm512_srav_epi64(_mm512_add_epi64(_mm512_add_epi64(v, less), odd), by);
}

/* Sums times multipliers, divided by 2^shift, halves to even, and a zero point added, with rows of 16:
   multipliers, shifts, the zero point. Lanes behind the last channel have shift 0: what they hold is not
   stored. Results are known to fit. scaled_mean: products are first rounded to multiples of 2^18. */
INLINE __m512i scaled_products(__m512i even, __m512i odd, const int32_t *by)
{
    const __m512i s = words(by + 16);
    const __m512i low = rounded_8(even, _mm512_and_si512(s, _mm512_set1_epi64(0xffffffff)));
    const __m512i high = rounded_8(odd, _mm512_srli_epi64(s, 32));
    return _mm512_add_epi32(_mm512_mask_shuffle_epi32(low, 0xaaaa, high, _MM_PERM_CCAA), words(by + 32));
}

INLINE __m512i scaled_even(__m512i sum, const int32_t *by)
{
    const __m512i m = words(by);
    return scaled_products(_mm512_mul_epi32(sum, m),
                           _mm512_mul_epi32(_mm512_srli_epi64(sum, 32), _mm512_srli_epi64(m, 32)), by);
}

INLINE __m512i coarse_8(__m512i v)
{
    return _mm512_and_si512(_mm512_add_epi64(v, _mm512_set1_epi64(1 << 17)), _mm512_set1_epi64(-(1 << 18)));
}

INLINE __m512i scaled_mean(__m512i sum, const int32_t *by)
{
    const __m512i m = words(by);
    return scaled_products(coarse_8(_mm512_mul_epi32(sum, m)),
                           coarse_8(_mm512_mul_epi32(_mm512_srli_epi64(sum, 32), _mm512_srli_epi64(m, 32))),
                           by);
}

/* The same where no halves come, with rows of 16: multipliers, shifts less one, 2 * zero point + 1. */
INLINE __m512i scaled_any(__m512i sum, const int32_t *by)
{
    return rescaled_16(sum, words(by), words(by + 16), by[32]);
}

/* The same where shifts are 32 to 54, with rows of 16: multipliers, those of odd channels twice, what is
   added to products of even and of odd channels (int64: half of 2^shift, and the zero point times that),
   shifts less 32. Only the upper halves of products are shifted. */
INLINE __m512i scaled_high(__m512i sum, const int32_t *by)
{
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(sum, words(by)), words(by + 32));
    const __m512i odd =
        _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(sum, 32), words(by + 16)), words(by + 48));
    return _mm512_srav_epi32(_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB), words(by + 64));
}

/* 64 bytes through a table of 256. */
#ifdef __AVX512VBMI__
typedef struct { __m512i a, b, c, d; } bytes_256;
INLINE bytes_256 table_of(const uint8_t *t)
{
    const bytes_256 found = {_mm512_loadu_si512(t), _mm512_loadu_si512(t + 64), _mm512_loadu_si512(t + 128),
                             _mm512_loadu_si512(t + 192)};
    return found;
}
INLINE __m512i looked_up(__m512i x, bytes_256 t)
{
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), _mm512_permutex2var_epi8(t.a, x, t.b),
                                  _mm512_permutex2var_epi8(t.c, x, t.d));
}
#else
typedef struct { const uint8_t *at; } bytes_256;
INLINE bytes_256 table_of(const uint8_t *t)
{
    const bytes_256 found = {t};
    return found;
}
INLINE __m512i looked_up(__m512i x, bytes_256 t)
{
    uint8_t v[64];
    _mm512_storeu_si512(v, x);
    for (int k = 0; k < 64; k++) v[k] = t.at[v[k]];
    return _mm512_loadu_si512(v);
}
#endif
