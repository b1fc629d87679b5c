/* Functions of floats that loops over elements call. They have no branches, so that compilers make vectors of
   them, and compute in double: results are off by hardly more than rounding. Polynomials are fits of least
   relative error at the points of Chebyshev. */

#define REAL_SHIFT 6755399441055744.0 /* 1.5 * 2^52: a sum with it has a whole number in its last bits */
#define REAL_LN2 0.693147180559945309
#define REAL_HALF_PI 1.57079632679489662
#define REAL_WIDE 1e6f /* of larger angles the rest is not exact */

static inline uint64_t real_bits(double x)
{
    uint64_t n;
    memcpy(&n, &x, sizeof n);
    return n;
}

static inline double real_of_bits(uint64_t n)
{
    double x;
    memcpy(&x, &n, sizeof x);
    return x;
}

/* e^x less `less`, which is 0 or 1: 2^n (e^r - 1) + 2^n - less; infinity above 700, 0 below -700. */
static inline double real_power(double x, double less)
{
    double t = x < -700.0 ? -700.0 : x;
    t = t > 700.0 ? 700.0 : t;
    const double shifted = t * 1.44269504088896341 + REAL_SHIFT, n = shifted - REAL_SHIFT;
    const double r = t - n * REAL_LN2, scale = real_of_bits((real_bits(shifted) + 1023) << 52);
    double p = 2.47932831886e-05 * r + 0.000199074263549;
    p = p * r + 0.00138889956944;
    p = p * r + 0.0083332837963;
    p = p * r + 0.0416666658477;
    p = p * r + 0.166666667851;
    p = p * r + 0.500000000014;
    p = p * r * r + r;
    const double y = x > 700.0 ? (double)INFINITY : p * scale + (scale - less);
    return x < -700.0 ? -less : y;
}

/* The logarithm of a double that is not denormal: x = 2^n m, m from sqrt(1/2) to sqrt(2). */
static inline double real_logarithm(double x)
{
    const uint64_t moved = real_bits(x) - UINT64_C(0x3fe6a09e667f3bcd) + (UINT64_C(1024) << 52);
    const uint64_t top = moved & UINT64_C(0xfff0000000000000);
    const double m = real_of_bits(real_bits(x) - (top - (UINT64_C(1024) << 52)));
    const double n = real_of_bits((top >> 52) | UINT64_C(0x4330000000000000)) - (4503599627370496.0 + 1024.0);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.196083054815 * z + 0.221742387943;
    p = p * z + 0.285721662716;
    p = p * z + 0.399999948928;
    p = p * z + 0.666666666796;
    double y = n * REAL_LN2 + (p * z * s + 2.0 * s);
    y = x > 1e308 ? x : y;
    y = x == 0.0 ? -(double)INFINITY : y;
    y = x < 0.0 ? (double)NAN : y;
    return x != x ? x : y;
}

static inline double real_logarithm_1(double x)
{
    const double y = real_logarithm(1.0 + x);
    return x < 1e-7 && x > -1e-7 ? x * (1.0 - 0.5 * x) : y;
}

/* With the sign of another number. */
static inline double real_signed(double x, double sign)
{
    const uint64_t top = UINT64_C(1) << 63;
    return real_of_bits((real_bits(x) & ~top) | (real_bits(sign) & top));
}

static inline double real_positive(double x) { return real_of_bits(real_bits(x) & ~(UINT64_C(1) << 63)); }

static inline float real_exp(float x) { return (float)real_power(x, 0.0); }
static inline float real_expm1(float x) { return (float)real_signed(real_power(x, 1.0), x); }
static inline float real_log(float x) { return (float)real_logarithm(x); }
static inline float real_log1p(float x) { return (float)real_logarithm_1(x); }

static inline float real_sinh(float x)
{
    const double e = real_power(real_positive(x), 1.0);
    return (float)real_signed(e > 1e300 ? e : 0.5 * (e + e / (e + 1.0)), x);
}

static inline float real_cosh(float x)
{
    const double e = real_power(real_positive(x), 0.0);
    return (float)(0.5 * (e + 1.0 / e));
}

static inline float real_asinh(float x)
{
    const double a = real_positive(x), square = a * a;
    const double y = real_logarithm_1(a + square / (1.0 + sqrt(1.0 + square)));
    return (float)real_signed(a > 1e38 ? real_logarithm(a) + REAL_LN2 : y, x);
}

static inline float real_acosh(float x)
{
    const double t = (double)x - 1.0, y = real_logarithm_1(t + sqrt(t * (t + 2.0)));
    return x < 1.0f ? NAN : (float)y;
}

static inline float real_atanh(float x)
{
    const double a = real_positive(x);
    return (float)real_signed(0.5 * real_logarithm_1(2.0 * a / (1.0 - a)), x) + (a > 1.0 ? NAN : 0.0f);
}

static inline float real_atan(float x)
{
    const double a = real_positive(x), t = a > 1.0 ? 1.0 / a : a, z = t * t;
    double p = -0.000667579340291 * z + 0.00475574320417;
    p = p * z - 0.0158842247095;
    p = p * z + 0.0339022522625;
    p = p * z - 0.0540210012734;
    p = p * z + 0.0723178072067;
    p = p * z - 0.0897539972643;
    p = p * z + 0.11092192104;
    p = p * z - 0.142838478084;
    p = p * z + 0.199999033887;
    p = p * z - 0.333333313503;
    p = p * z * t + t;
    return (float)real_signed(a > 1.0 ? REAL_HALF_PI - p : p, x);
}

/* The arcsine of the square root of z up to 1/4, s, over s. */
static inline double real_arcsine(double s, double z)
{
    double p = 0.0330356059168 * z + 0.00183794492299;
    p = p * z + 0.0207127178032;
    p = p * z + 0.0218491421161;
    p = p * z + 0.0304288869631;
    p = p * z + 0.0446405162545;
    p = p * z + 0.0750000580547;
    p = p * z + 0.166666666115;
    return p * z * s + s;
}

static inline float real_asin(float x)
{
    const double a = real_positive(x), z = a > 0.5 ? 0.5 * (1.0 - a) : a * a, s = a > 0.5 ? sqrt(z) : a;
    const double p = real_arcsine(s, z);
    return (float)real_signed(a > 0.5 ? REAL_HALF_PI - 2.0 * p : p, x);
}

static inline float real_acos(float x)
{
    const double a = real_positive(x), z = a > 0.5 ? 0.5 * (1.0 - a) : a * a, s = a > 0.5 ? sqrt(z) : a;
    const double p = real_arcsine(s, z), inner = REAL_HALF_PI - real_signed(p, x);
    const double outer = x < 0.0f ? 2.0 * REAL_HALF_PI - 2.0 * p : 2.0 * p;
    return (float)(a > 0.5 ? outer : inner);
}

/* Sine, cosine and tangent of angles up to REAL_WIDE: of the rest of a multiple of a right angle, quarter by
   quarter. */
static inline double real_quarter(double x, uint64_t *quarter)
{
    const double shifted = x * 0.636619772367581343 + REAL_SHIFT, n = shifted - REAL_SHIFT;
    *quarter = real_bits(shifted);
    return (x - n * 1.57079632673412561) - n * 6.07710050650619225e-11;
}

static inline double real_sine(double r)
{
    const double z = r * r;
    double p = 2.71714946426e-06 * z - 0.000198391779359;
    p = p * z + 0.00833332868849;
    p = p * z - 0.166666666304;
    return p * z * r + r;
}

static inline double real_cosine(double r)
{
    const double z = r * r;
    double p = -2.71677472169e-07 * z + 2.47988405588e-05;
    p = p * z - 0.00138888799137;
    p = p * z + 0.0416666665332;
    p = p * z - 0.499999999993;
    return p * z + 1.0;
}

static inline float real_sin(float x)
{
    uint64_t quarter;
    const double r = real_quarter(x, &quarter), y = quarter & 1 ? real_cosine(r) : real_sine(r);
    return (float)(quarter & 2 ? -y : y);
}

static inline float real_cos(float x)
{
    uint64_t quarter;
    const double r = real_quarter(x, &quarter), y = quarter & 1 ? real_sine(r) : real_cosine(r);
    return (float)((quarter + 1) & 2 ? -y : y);
}

static inline float real_tan(float x)
{
    uint64_t quarter;
    const double r = real_quarter(x, &quarter), s = real_sine(r), c = real_cosine(r);
    return (float)(quarter & 1 ? -c / s : s / c);
}

/* As C's pow, case by case. */
static inline float real_pow(float x, float y)
{
    const double a = real_positive(x), half = 0.5 * (double)y;
    const int whole = floor((double)y) == (double)y, odd = whole && floor(half) != half;
    double z = real_power(real_logarithm(a) * (double)y, 0.0);
    z = a == 1.0 ? 1.0 : z;
    z = odd ? real_signed(z, x) : z;
    z = x < 0.0f && a < 1e308 && !whole ? (double)NAN : z;
    return x == 1.0f || y == 0.0f ? 1.0f : (float)z;
}
