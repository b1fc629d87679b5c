/* Folds over floats that lie side by side, in the widest vectors. Of an `omp simd reduction`, GCC 12 folds
   lanes one by one, in memory. */

#define OF_BOTH(a, b) a##b
#define OF_LANES(name, lanes) OF_BOTH(name, lanes)
#define WIDEST(name) OF_LANES(name, LANES)

typedef WIDEST(v) widest;

static inline widest loaded(const float *x) { return *(const WIDEST(u) *)x; }

/* Whether one of the lanes is not a number. */
static inline int is_odd(widest x)
{
#if LANES > 8
    return _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q) != 0;
#else
    return WIDEST(sum_)(WIDEST(SELECT_)(x == x, WIDEST(SPLAT_)(0.0f), WIDEST(SPLAT_)(1.0f))) > 0.0f;
#endif
}

/* The largest of n, or the least; what is not a number where one is not. The last vector begins within the
   one before it, which changes no extreme. */
#define EXTREME(name, start, fold, across, fold_1)                            \
    static inline float name(const float *x, int n)                           \
    {                                                                         \
        float most = start;                                                   \
        int k = 0;                                                            \
        if (n < LANES) {                                                      \
            for (; k < n; k++) most = fold_1(most, x[k]);                     \
            return most;                                                      \
        }                                                                     \
        widest a = loaded(x), b = loaded(x + n - LANES);                      \
        for (; k + 2 * LANES <= n; k += 2 * LANES) {                          \
            a = WIDEST(fold)(a, loaded(x + k));                               \
            b = WIDEST(fold)(b, loaded(x + k + LANES));                       \
        }                                                                     \
        if (k + LANES <= n) a = WIDEST(fold)(a, loaded(x + k));               \
        a = WIDEST(fold)(a, b);                                               \
        return is_odd(a) ? NAN : across(a);                                   \
    }
#define SMALLEST(a) -WIDEST(largest_)(-(a))
EXTREME(largest_of, -INFINITY, most_, WIDEST(largest_), most_1)
EXTREME(smallest_of, INFINITY, least_, SMALLEST, least_1)

/* The first of n that is equal to a value, or that is not a number where the value is not; n: none is. */
static inline int first_equal(const float *x, int n, float value)
{
    int k = 0;
#if LANES > 8
    const __m512 v = _mm512_set1_ps(value);
    const __mmask16 odd = (__mmask16)-(value != value);
    for (; k + 16 <= n; k += 16) {
        const __m512 a = _mm512_loadu_ps(x + k);
        const __mmask16 mask = (__mmask16)(_mm512_cmp_ps_mask(a, v, _CMP_EQ_OQ) |
                                           _mm512_mask_cmp_ps_mask(odd, a, a, _CMP_UNORD_Q));
        if (mask) return k + __builtin_ctz(mask);
    }
#else
    for (; k + 16 <= n; k += 16) {
        int some = 0;
        EACH_FOLDED(reduction(| : some))
        for (int j = k; j < k + 16; j++) some |= (x[j] == value) | ((x[j] != x[j]) & (value != value));
        if (some) break;
    }
#endif
    while (k < n && !(x[k] == value || (x[k] != x[k] && value != value))) k++;
    return k;
}

/* Sums are in double, so many lanes at a time. */
#if LANES > 8
#define PARTS 8
typedef double doubles __attribute__((vector_size(64)));
static inline doubles in_doubles(const float *x) { return (doubles)_mm512_cvtps_pd(_mm256_loadu_ps(x)); }
static inline double sum_of_lanes(doubles x) { return _mm512_reduce_add_pd((__m512d)x); }
#elif LANES > 1
#define PARTS (LANES / 2)
typedef float half_widest __attribute__((vector_size(4 * PARTS), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(8 * PARTS)));
static inline doubles in_doubles(const float *x)
{
    return __builtin_convertvector(*(const half_widest *)x, doubles);
}

static inline double sum_of_lanes(doubles x)
{
    double s = x[0];
    for (int k = 1; k < PARTS; k++) s += x[k];
    return s;
}
#else
#define PARTS 1
typedef double doubles;
static inline doubles in_doubles(const float *x) { return (double)*x; }
static inline double sum_of_lanes(doubles x) { return x; }
#endif

static inline double sum_of(const float *x, int n)
{
    doubles s = {0.0}, t = s, u = s, v = s;
    int k = 0;
    for (; k + 4 * PARTS <= n; k += 4 * PARTS) {
        s += in_doubles(x + k);
        t += in_doubles(x + k + PARTS);
        u += in_doubles(x + k + 2 * PARTS);
        v += in_doubles(x + k + 3 * PARTS);
    }
    for (; k + PARTS <= n; k += PARTS) s += in_doubles(x + k);
    double sum = sum_of_lanes((s + t) + (u + v));
    for (; k < n; k++) sum += (double)x[k];
    return sum;
}

/* Adds to sums: those of n elements less a centre, and of the squares of that. */
static inline void moments_of(const float *x, int n, double centre, double *sum, double *square)
{
    doubles s = {0.0}, t = s, p = s, q = s;
    int k = 0;
    for (; k + 2 * PARTS <= n; k += 2 * PARTS) {
        const doubles a = in_doubles(x + k) - centre, b = in_doubles(x + k + PARTS) - centre;
        s += a;
        t += b;
        p += a * a;
        q += b * b;
    }
    *sum += sum_of_lanes(s + t);
    *square += sum_of_lanes(p + q);
    for (; k < n; k++) {
        const double v = (double)x[k] - centre;
        *sum += v;
        *square += v * v;
    }
}

static inline double squares_of(const float *x, int n)
{
    double sum = 0.0, square = 0.0;
    moments_of(x, n, 0.0, &sum, &square);
    return square;
}
