
/* Fixed-point arithmetic of quantised networks: lfopt/ops/fixed_point.py defines it. */

/* v / 2^by, rounded down; C leaves open what >> makes of a negative number. */
static inline int64_t shifted(int64_t v, int by) { return v < 0 ? ~(~v >> by) : v >> by; }

/* v / 2^by, to nearest, halves to even. */
static inline int64_t rounded(int64_t v, int by)
{
    return shifted(v + (INT64_C(1) << (by - 1)) - 1 + (shifted(v, by) & 1), by);
}

static inline int64_t rescaled(int32_t sum, int32_t multiplier, int shift)
{
    return rounded((int64_t)sum * multiplier, shift);
}

/* Of a mean: the product is first rounded to a multiple of 2^18. */
static inline int64_t averaged(int32_t sum, int32_t multiplier, int shift)
{
    const int64_t product = (int64_t)sum * multiplier + (1 << 17);
    return rounded(product - (product & ((1 << 18) - 1)), shift);
}

static inline int clamped(int64_t v, int least, int most)
{
    return v < least ? least : v > most ? most : (int)v;
}

/* Whole steps, as an integer; the least if it is not a number. */
static inline int32_t steps(double v)
{
    return v >= -1e9 ? v > 1e9 ? 1000000000 : (int32_t)v : -1000000000;
}

/* A sum in the order in which NumPy adds doubles that lie side by side. */
static inline double pairwise_sum(const double *x, int n)
{
    if (n > 128) {
        const int half = n / 2 - n / 2 % 8;
        return pairwise_sum(x, half) + pairwise_sum(x + half, n - half);
    }
    double r[8] = {0.0}, sum;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) r[k] = i ? r[k] + x[i + k] : x[k];
    sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++) sum += x[i];
    return sum;
}
