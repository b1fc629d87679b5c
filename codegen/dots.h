
/* Bytes, 16 of them as int32 sums: AVX-512 with VNNI. See codegen/integer.h for the arithmetic. */
#define FLIP _mm512_set1_epi8(-128) /* int8 as uint8, 128 more */

/* To every int32 of s, four products of bytes of a (0 to 255) and w. Of _mm512_dpbusd_epi32, GCC 12 keeps every sum twice, and on the stack. */
#define ADD_PRODUCTS(s, a, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(w))

INLINE __m512i four(const void *x) /* bytes, in every lane */
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
}

INLINE __m512i words(const int32_t *x) { return _mm512_loadu_si512((const void *)x); }
INLINE __m512i from_int8(const int8_t *x, __mmask16 some) { return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(some, x)); }
INLINE __m512i from_uint8(const uint8_t *x, __mmask16 some) { return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, x)); }
INLINE void to_int8(int8_t *y, __mmask16 some, __m512i v) { _mm_mask_storeu_epi8(y, some, _mm512_cvtsepi32_epi8(v)); }
INLINE void to_uint8(uint8_t *y, __mmask16 some, __m512i v)
{
    _mm_mask_storeu_epi8(y, some, _mm512_cvtusepi32_epi8(_mm512_max_epi32(v, _mm512_setzero_si512())));
}

/* Sums times multipliers, divided by 2^shift and rounded, and a zero point added: `less` holds shifts less one, `up` is 2 * zero point + 1. Results
   are known to fit. floor((floor(p / 2^(shift - 1)) + 1) / 2) is floor((p + 2^(shift - 1)) / 2^shift). */
INLINE __m512i rescaled_16(__m512i sum, __m512i multiplier, __m512i less, int up)
{
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    const __m512i even = _mm512_srav_epi64(_mm512_mul_epi32(sum, multiplier), _mm512_and_si512(less, low));
    const __m512i odd = _mm512_srav_epi64(
        _mm512_mul_epi32(_mm512_srli_epi64(sum, 32), _mm512_srli_epi64(multiplier, 32)), _mm512_srli_epi64(less, 32));
    const __m512i both = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
    return _mm512_srai_epi32(_mm512_add_epi32(both, _mm512_set1_epi32(up)), 1);
}

/* 64 bytes through a table of 256. */
INLINE __m512i looked_up(__m512i x, const uint8_t *table)
{
#ifdef __AVX512VBMI__
    const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
    const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), _mm512_permutex2var_epi8(t0, x, t1), _mm512_permutex2var_epi8(t2, x, t3));
#else
    uint8_t v[64];
    _mm512_storeu_si512(v, x);
    for (int k = 0; k < 64; k++) v[k] = table[v[k]];
    return _mm512_loadu_si512(v);
#endif
}
