/* Products of many rows: y = x @ W.T, W held as bfloat16, on the tile registers (AMX) of a processor
 * that has them.
 *
 * A tile register multiplies bfloat16 and adds in float32. Cut after each eight bits, a float32 is
 * the sum of three bfloat16, exactly: three products of tiles are one of x, without a rounding.
 *
 * Per 32 of the depth and per part of x, high, middle, low: the even places make one chain of fused
 * multiply-adds, the odd ones another, and their sum is added to the result. A result depends on
 * its row of x and its row of W alone.
 *
 * model/many_rows.py checks what is passed; the measurements are in
 * docs/adr/0058-many-rows-on-tile-registers.md.
 */

#include <immintrin.h>
#include <stdint.h>

#define STEP 32
#define PARTS 3
/* bfloat16 of a tile register: 16 rows of W by a step, or 16 pairs of a step by 16 rows of x. */
#define TILE (16 * STEP)
/* Rows of x and rows of W of one block of the result: two by two tiles. */
#define PANEL 32
#define SUMS (PANEL * PANEL)
/* Rows and steps of W that are taken at once: they and their sums stay in the second cache, the
 * same steps of a panel of x in the first. */
#define COLUMNS 256
#define STEPS 6
#define ROWS_MAX 256
#define UNROLL _Pragma("GCC unroll 16")

struct scratch {
  uint16_t weights[COLUMNS * STEPS * STEP];
  float sums[ROWS_MAX * COLUMNS];
};

long many_rows_scratch(void) { return sizeof(struct scratch); }

static inline __mmask16 first(long count) {
  return count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1;
}

/* The upper half of 32 values in two registers as bfloat16; it is gone from the values. */
static inline __m512i part(__m512 values[2]) {
  __m512i upper[2];
  UNROLL for (int i = 0; i < 2; i++) {
    upper[i] = _mm512_srli_epi32(_mm512_castps_si512(values[i]), 16);
    values[i] = _mm512_sub_ps(values[i], _mm512_castsi512_ps(_mm512_slli_epi32(upper[i], 16)));
  }
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(upper[0])),
                            _mm512_cvtepi32_epi16(upper[1]), 1);
}

/* Rows and columns of 16 by 16 elements of 32 bits change places. */
static inline void transpose(__m512i r[16]) {
  __m512i t[16];
  UNROLL for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  UNROLL for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  UNROLL for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  UNROLL for (int i = 0; i < 8; i++) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/* x[rows, depth], panels start .. stop - 1, as [panel, step, part, 2, 16 pairs, 16 rows, 2]: what
 * a tile register takes as the right side. Zeros stand for what is missing at the ends. */
void many_rows_pack(const float *x, uint16_t *packed, long rows, long depth, long start,
                    long stop) {
  long steps = (depth + STEP - 1) / STEP;
  packed += start * steps * PARTS * 2 * TILE;
  for (long panel = start; panel < stop; panel++)
    for (long at = 0; at < depth; at += STEP, packed += PARTS * 2 * TILE)
      for (int half = 0; half < 2; half++) {
        __m512i parts[PARTS][16];
        for (int r = 0; r < 16; r++) {
          long row = panel * PANEL + half * 16 + r;
          const float *p = x + row * depth + at;
          long left = row < rows ? depth - at : 0;
          __m512 values[2] = {_mm512_maskz_loadu_ps(first(left), p),
                              _mm512_maskz_loadu_ps(first(left - 16), p + 16)};
          for (int i = 0; i < PARTS; i++) parts[i][r] = part(values);
        }
        for (int i = 0; i < PARTS; i++) {
          transpose(parts[i]);
          for (int pair = 0; pair < 16; pair++)
            _mm512_store_si512(packed + (i * 2 + half) * TILE + pair * STEP, parts[i][pair]);
        }
      }
}

#define EACH_SUM(DO) DO(0) DO(1) DO(2) DO(3)
#define ZERO(i) _tile_zero(i);
#define LOAD(i) _tile_loadd(i, sums + i * 256, 16 * sizeof *sums);
#define STORE(i) _tile_stored(i, sums + i * 256, 16 * sizeof *sums);

/* `steps` of the depth of a block of the result: [2, 2, 16 rows of W, 16 rows of x]. */
static void block(const uint16_t *w, const uint16_t *x, float *sums, long steps, int begins) {
  if (begins) {
    EACH_SUM(ZERO)
  } else {
    EACH_SUM(LOAD)
  }
  for (; steps > 0; steps--, w += 2 * TILE) {
    _tile_loadd(4, w, STEP * sizeof *w);
    _tile_loadd(5, w + TILE, STEP * sizeof *w);
    for (int i = 0; i < PARTS; i++, x += 2 * TILE) {
      _tile_loadd(6, x, STEP * sizeof *x);
      _tile_loadd(7, x + TILE, STEP * sizeof *x);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  EACH_SUM(STORE)
}

/* Sums of `rows` rows by `columns`, [panel of x, panel of W, 2, 2, 16, 16], to where they belong. */
static void put(const float *sums, float *y, long rows, long columns, long stride) {
  for (long row = 0; row < rows; row += PANEL)
    for (long column = 0; column < columns; column += PANEL, sums += SUMS)
      for (int tile = 0; tile < 4; tile++) {
        long r = row + tile % 2 * 16, c = column + tile / 2 * 16;
        __m512i lines[16];
        for (int i = 0; i < 16; i++)
          lines[i] = _mm512_load_si512(sums + tile * 256 + i * 16);
        transpose(lines);
        for (int i = 0; i < 16 && r + i < rows; i++)
          _mm512_mask_storeu_ps(y + (r + i) * stride + c, first(columns - c),
                                _mm512_castsi512_ps(lines[i]));
      }
}

static void use_whole_tiles(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    shape.row_bytes[i] = 64;
    shape.rows[i] = 16;
  }
  _tile_loadconfig(&shape);
}

/* `steps` of W[columns, depth], from `at` on, as [panel, step, 2, 16 rows, 32]. */
static void take(const uint16_t *w, uint16_t *taken, long columns, long depth, long at,
                 long steps) {
  for (long column = 0; column < (columns + PANEL - 1) / PANEL * PANEL; column++)
    for (long s = 0; s < steps; s++) {
      long from = at + s * STEP, left = column < columns ? depth - from : 0;
      __mmask32 mask = first(left) | (uint32_t)first(left - 16) << 16;
      _mm512_store_si512(
          taken + (column / PANEL * steps + s) * 2 * TILE + column % PANEL * STEP,
          _mm512_maskz_loadu_epi16(mask, w + column * depth + from));
    }
}

/* y[rows, columns] = x @ w[columns, depth].T; x as many_rows_pack lays it out, at most ROWS_MAX
 * rows; rows of y `stride` apart. */
void many_rows_multiply(const uint16_t *x, const uint16_t *w, float *y, struct scratch *scratch,
                        long rows, long columns, long depth, long stride) {
  long all = (depth + STEP - 1) / STEP, panels = (rows + PANEL - 1) / PANEL;
  use_whole_tiles();
  for (; columns > 0; columns -= COLUMNS, w += COLUMNS * depth, y += COLUMNS) {
    long width = columns < COLUMNS ? columns : COLUMNS, groups = (width + PANEL - 1) / PANEL;
    for (long at = 0; at < all; at += STEPS) {
      long steps = all - at < STEPS ? all - at : STEPS;
      take(w, scratch->weights, width, depth, at * STEP, steps);
      for (long p = 0; p < panels; p++)
        for (long g = 0; g < groups; g++)
          block(scratch->weights + g * steps * 2 * TILE, x + (p * all + at) * PARTS * 2 * TILE,
                scratch->sums + (p * groups + g) * SUMS, steps, at == 0);
    }
    put(scratch->sums, y, rows, width, stride);
  }
  _tile_release();
}
