
/* to[c * pitch + r * along] = from[r * down + c * across] * factor[c * each], for rows r and columns c. */
static void turn(const float *from, int down, int across, int rows, int columns, float *to, int pitch,
                 int along, const float *factor, int each)
{
    int done = 0;
#if LANES > 8 /* squares of 16: neighbours change places, then pairs, fours and eights */
    for (; across == 1 && along == 1 && done + 16 <= columns; done += 16)
        for (int r = 0; r < rows; r += 16) {
            const int count = smaller(rows - r, 16);
            __m512 a[16], b[16];
#pragma GCC unroll 16
            for (int k = 0; k < 16; k++)
                a[k] = k < count ? _mm512_loadu_ps(from + (r + k) * down + done) : _mm512_setzero_ps();
#pragma GCC unroll 16
            for (int k = 0; k < 16; k += 2) {
                b[k] = _mm512_unpacklo_ps(a[k], a[k + 1]);
                b[k + 1] = _mm512_unpackhi_ps(a[k], a[k + 1]);
            }
#pragma GCC unroll 16
            for (int k = 0; k < 16; k += 4) {
                a[k] = _mm512_shuffle_ps(b[k], b[k + 2], 0x44);
                a[k + 1] = _mm512_shuffle_ps(b[k], b[k + 2], 0xee);
                a[k + 2] = _mm512_shuffle_ps(b[k + 1], b[k + 3], 0x44);
                a[k + 3] = _mm512_shuffle_ps(b[k + 1], b[k + 3], 0xee);
            }
#pragma GCC unroll 16
            for (int k = 0; k < 4; k++) {
                b[k] = _mm512_shuffle_f32x4(a[k], a[k + 4], 0x88);
                b[k + 4] = _mm512_shuffle_f32x4(a[k], a[k + 4], 0xdd);
                b[k + 8] = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0x88);
                b[k + 12] = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0xdd);
            }
#pragma GCC unroll 16
            for (int k = 0; k < 8; k++) {
                a[k] = _mm512_shuffle_f32x4(b[k], b[k + 8], 0x88);
                a[k + 8] = _mm512_shuffle_f32x4(b[k], b[k + 8], 0xdd);
            }
#pragma GCC unroll 16
            for (int k = 0; k < 16; k++)
                _mm512_mask_storeu_ps(
                    to + (done + k) * pitch + r, (__mmask16)((1u << count) - 1),
                    _mm512_mul_ps(a[k], _mm512_set1_ps(factor[(done + k) * each])));
        }
#endif
    for (int c = done; c < columns; c++)
        for (int r = 0; r < rows; r++)
            to[c * pitch + r * along] = from[r * down + c * across] * factor[c * each];
}
