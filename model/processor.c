/* What this processor has of what model/few_rows.c and model/many_rows.c are compiled for. Apart
 * from them, as it must itself run on any processor. */

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA 18

/* Which of the two forms of few_rows.c: 2 is AVX-512F, 1 is AVX2, 0 is neither. */
int instruction_set(void) {
  if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) return 0;
  if (__builtin_cpu_supports("avx512f")) return 2;
  return __builtin_cpu_supports("avx2") ? 1 : 0;
}

/* Whether this process may use many_rows.c. Linux has every process ask for the tile registers:
 * they make what it saves of a thread larger. */
int tile_registers(void) {
  uint32_t a = 7, b, c = 0, d;
  if (instruction_set() != 2 || !__builtin_cpu_supports("avx512bw")) return 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  /* AMX-BF16 and AMX-TILE. */
  if (!(d >> 22 & 1) || !(d >> 24 & 1)) return 0;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}
