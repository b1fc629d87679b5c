
/* float16 and bfloat16, which networks may take and give; everything else is computed in float. To the
   nearest, to even where two are as near. */
typedef uint16_t half;
typedef uint16_t brain;

static inline float from_half(half x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, bits = x & 0x7fffu;
    if (bits >= 0x7c00u) return floats_1(sign | 0x7f800000u | (bits & 0x3ffu) << 13);
    if (bits >= 0x0400u) return floats_1(sign | ((bits << 13) + 0x38000000u));
    return floats_1(sign | bits_1((float)bits * 5.9604644775390625e-8f)); /* 2^-24 */
}

static inline half to_half(float x)
{
    const uint32_t bits = bits_1(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (half)(sign | 0x7e00u);
    if (size >= 0x477ff000u) return (half)(sign | 0x7c00u);
    /* Steps of 2^-24, as those of a float from 0.5 on. */
    if (size < 0x38800000u) return (half)(sign | (bits_1(floats_1(size) + 0.5f) - 0x3f000000u));
    return (half)(sign | ((size + 0xfffu + (size >> 13 & 1u)) - 0x38000000u) >> 13);
}

static inline float from_brain(brain x) { return floats_1((uint32_t)x << 16); }

static inline brain to_brain(float x)
{
    const uint32_t bits = bits_1(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (brain)(bits >> 16 | 0x40u);
    return (brain)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
