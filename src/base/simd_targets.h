#pragma once

// Must be included first by every file that compiles its kernels once per instruction set (hwy/foreach_target.h).
// Enables AVX-512, AVX2 and the baseline on x86, and the fixed-size vector targets of other architectures.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_WASM_EMU256)
