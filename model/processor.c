/* Which of the two forms of model/few_rows.c this processor runs: 2 is AVX-512F, 1 is AVX2, 0 is
 * neither. Apart from them, as it must itself run on any processor. */

int instruction_set(void) {
  if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) return 0;
  if (__builtin_cpu_supports("avx512f")) return 2;
  return __builtin_cpu_supports("avx2") ? 1 : 0;
}
