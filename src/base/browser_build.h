#pragma once

namespace jerboa::detail {

/// Whether this is the compiler that web pages download, jerboa.wasm. It leaves out code that a page cannot use,
/// because every visitor would download it: dumps for developers, and the verification of programs, which the native
/// compiler performs for the same bytes and the TypeScript host for whatever it loads.
#ifdef __EMSCRIPTEN__
inline constexpr bool is_browser_build = true;
#else
inline constexpr bool is_browser_build = false;
#endif

}  // namespace jerboa::detail
