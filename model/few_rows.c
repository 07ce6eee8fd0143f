/* Products of few rows: y = x @ W.T, W held as float32, bfloat16 or float16, sums in float32.
 *
 * One result is sixteen sums (lane i adds the products at depth i, i + 16, ... in this order, each
 * by a fused multiply-add) and then a tree over the lanes: 16, 8, 4, 2, 1. It depends on its row of
 * x and its row of W alone, never on the tile it is computed in: a request gives the same bytes in
 * a batch of any size, on any number of threads and with either instruction set.
 *
 * Compiled once per instruction set. model/few_rows.py checks what is passed; the measurements are
 * in docs/adr/0056-a-kernel-for-few-rows.md.
 */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
/* A multiple of the width of every tile. */
#define PANEL 24
#define UNROLL _Pragma("GCC unroll 16")

/* What differs: a register holds all lanes or half of them, and a tile of the result, rows of x by
 * rows of W, is as large as the registers allow. TILES has the width for each number of rows. */
#ifdef __AVX512F__
#define NAME(x) x##_avx512f
#define WIDTH 16
#define ROWS 8
#define TILES(T, type)                                        \
  T(type, 1, 8) T(type, 2, 8) T(type, 3, 6) T(type, 4, 6)     \
  T(type, 5, 4) T(type, 6, 4) T(type, 7, 3) T(type, 8, 3)
typedef __m512 vector;
#define ZERO _mm512_setzero_ps()
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define FMA _mm512_fmadd_ps
#define HALF(p) _mm256_loadu_si256((const __m256i *)(p))
#define FROM_FLOAT16(p) _mm512_cvtph_ps(HALF(p))
#define FROM_BFLOAT16(p) \
  _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(HALF(p)), 16))
#define HALVED(parts)                                                                        \
  _mm256_add_ps(_mm512_castps512_ps256(parts[0]),                                            \
                _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(parts[0]), 1)))
#else
#define NAME(x) x##_avx2
#define WIDTH 8
#define ROWS 3
#define TILES(T, type) T(type, 1, 4) T(type, 2, 3) T(type, 3, 2)
typedef __m256 vector;
#define ZERO _mm256_setzero_ps()
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define FMA _mm256_fmadd_ps
#define HALF(p) _mm_loadu_si128((const __m128i *)(p))
#define FROM_FLOAT16(p) _mm256_cvtph_ps(HALF(p))
#define FROM_BFLOAT16(p) \
  _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(HALF(p)), 16))
#define HALVED(parts) _mm256_add_ps(parts[0], parts[1])
#endif
#define PARTS (LANES / WIDTH)

typedef float held_float32;
typedef uint16_t held_float16;
typedef uint16_t held_bfloat16;

static inline float tree(__m256 eight) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* Sixteen of the depth for a whole tile. The empty assembly keeps what is loaded in a register: GCC
 * would read it from memory again for every use. */
#define STEP(WIDENED, w, apart)                                                                 \
  UNROLL for (int p = 0; p < PARTS; p++) {                                                      \
    vector weights[8];                                                                          \
    UNROLL for (int c = 0; c < columns; c++) {                                                  \
      weights[c] = WIDENED((w) + c * (apart) + p * WIDTH);                                      \
      __asm__("" : "+v"(weights[c]));                                                           \
    }                                                                                           \
    UNROLL for (int r = 0; r < rows; r++) {                                                     \
      vector value = LOAD(x + r * LANES + p * WIDTH);                                           \
      __asm__("" : "+v"(value));                                                                \
      UNROLL for (int c = 0; c < columns; c++)                                                  \
        sums[r][c][p] = FMA(value, weights[c], sums[r][c][p]);                                  \
    }                                                                                           \
  }

/* Inlined with constant rows and columns, so that `sums` is registers. x is packed; what is missing
 * of the last sixteen is zero on both sides and adds nothing. The prefetch is for the next tile:
 * rows of a few KB are too short for the processor's own. */
#define DEFINE_TILE(type, WIDENED)                                                              \
  static inline __attribute__((always_inline)) void tile_##type(                                \
      const float *x, const held_##type *w, float *y, long depth, long stride,                  \
      const int rows, const int columns) {                                                      \
    vector sums[ROWS][8][PARTS];                                                                \
    UNROLL for (int r = 0; r < rows; r++)                                                       \
      UNROLL for (int c = 0; c < columns; c++)                                                  \
        UNROLL for (int p = 0; p < PARTS; p++) sums[r][c][p] = ZERO;                            \
    long at = 0;                                                                                \
    for (; at + LANES <= depth; at += LANES, x += rows * LANES) {                               \
      UNROLL for (int c = 0; c < columns; c++)                                                  \
        _mm_prefetch((const char *)(w + (columns + c) * depth + at), _MM_HINT_T1);              \
      STEP(WIDENED, w + at, depth)                                                              \
    }                                                                                           \
    if (at < depth) {                                                                           \
      held_##type last[8][LANES] = {{0}};                                                       \
      for (int c = 0; c < columns; c++)                                                         \
        memcpy(last[c], w + c * depth + at, (depth - at) * sizeof *w);                          \
      STEP(WIDENED, *last, LANES)                                                               \
    }                                                                                           \
    UNROLL for (int r = 0; r < rows; r++)                                                       \
      UNROLL for (int c = 0; c < columns; c++) y[r * stride + c] = tree(HALVED(sums[r][c]));    \
  }

#define DEFINE_ROWS(type, n, width)                                                             \
  static __attribute__((noinline)) void rows_##type##_##n(                                      \
      const float *x, const held_##type *w, float *y, long columns, long depth, long stride) {  \
    long c = 0;                                                                                 \
    for (; c + width <= columns; c += width)                                                    \
      tile_##type(x, w + c * depth, y + c, depth, stride, n, width);                            \
    for (; c < columns; c++) tile_##type(x, w + c * depth, y + c, depth, stride, n, 1);         \
  }
#define CALL_ROWS(type, n, width) \
  case n: rows_##type##_##n(x, w, y, columns, depth, stride); break;

/* y[rows, columns] = x @ w[columns, depth].T; x as `pack` lays it out, rows of y `stride` apart.
 * All rows of x meet PANEL rows of W, which stay in the cache, before the next are read. */
#define DEFINE(type, WIDENED)                                                                   \
  DEFINE_TILE(type, WIDENED)                                                                    \
  TILES(DEFINE_ROWS, type)                                                                      \
  static void panel_##type(const float *x, const held_##type *w, float *y, long rows,           \
                           long columns, long depth, long stride) {                             \
    long padded = (depth + LANES - 1) / LANES * LANES;                                          \
    for (; rows > 0; rows -= ROWS, x += ROWS * padded, y += ROWS * stride)                      \
      switch (rows < ROWS ? rows : ROWS) { TILES(CALL_ROWS, type) }                             \
  }                                                                                             \
  void NAME(multiply_##type)(const float *x, const held_##type *w, float *y, long rows,         \
                             long columns, long depth, long stride) {                           \
    for (; columns > 0; columns -= PANEL, w += PANEL * depth, y += PANEL)                       \
      panel_##type(x, w, y, rows, columns < PANEL ? columns : PANEL, depth, stride);            \
  }                                                                                             \
  /* `count` held values as float32. */                                                         \
  void NAME(widen_##type)(const held_##type *w, float *values, long count) {                    \
    long at = 0;                                                                                \
    for (; at + WIDTH <= count; at += WIDTH) STORE(values + at, WIDENED(w + at));               \
    if (at < count) {                                                                           \
      held_##type last[WIDTH] = {0};                                                            \
      float widened[WIDTH];                                                                     \
      memcpy(last, w + at, (count - at) * sizeof *w);                                           \
      STORE(widened, WIDENED(last));                                                            \
      memcpy(values + at, widened, (count - at) * sizeof *values);                              \
    }                                                                                           \
  }

DEFINE(float32, LOAD)
DEFINE(float16, FROM_FLOAT16)
DEFINE(bfloat16, FROM_BFLOAT16)

/* x[rows, depth], ROWS rows at a time, as [depth / 16, rows, 16] with zeros at the end: a tile then
 * reads it from front to back. */
void NAME(pack)(const float *x, float *packed, long rows, long depth) {
  for (; rows > 0; rows -= ROWS, x += ROWS * depth)
    for (long at = 0; at < depth; at += LANES)
      for (long r = 0; r < (rows < ROWS ? rows : ROWS); r++, packed += LANES) {
        long count = depth - at < LANES ? depth - at : LANES;
        if (count < LANES) memset(packed, 0, LANES * sizeof *x);
        memcpy(packed, x + r * depth + at, count * sizeof *x);
      }
}
