#pragma once

namespace jerboa::detail {

/// Whether this is the compiler that pages download, jerboa.wasm. It leaves out what a page cannot use, because every
/// visitor would download it: what is printed for developers, and the proof of programs, which the native compiler
/// gives for the same bytes and the host in TypeScript for whatever it loads.
#ifdef __EMSCRIPTEN__
inline constexpr bool is_browser_build = true;
#else
inline constexpr bool is_browser_build = false;
#endif

}  // namespace jerboa::detail
