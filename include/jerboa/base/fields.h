#pragma once

/// JERBOA_FIELDS(a, b, …) lists the members of a plain struct once, so that code can walk them by name: parameters of a
/// model get their paths from it, attributes of an op their printing and JSON. The struct must not be local to a
/// function: C++ does not allow member templates there.
///
///   struct Block {
///     nn::Linear up{64, 256}, down{256, 64};
///     JERBOA_FIELDS(up, down)
///   };
///   block.for_each_field([](const char* name, auto& field) { … });
#define JERBOA_FIELDS(...)                                    \
  template <class Visit>                                      \
  void for_each_field([[maybe_unused]] Visit&& visit) {       \
    JERBOA_FOR_EACH(JERBOA_VISIT_FIELD, __VA_ARGS__)          \
  }                                                           \
  template <class Visit>                                      \
  void for_each_field([[maybe_unused]] Visit&& visit) const { \
    JERBOA_FOR_EACH(JERBOA_VISIT_FIELD, __VA_ARGS__)          \
  }

#define JERBOA_VISIT_FIELD(field) visit(#field, field);

// Recursive expansion: 4^4 rescans, enough for 256 fields.
#define JERBOA_PARENS ()
#define JERBOA_EXPAND(...) JERBOA_EXPAND3(JERBOA_EXPAND3(JERBOA_EXPAND3(JERBOA_EXPAND3(__VA_ARGS__))))
#define JERBOA_EXPAND3(...) JERBOA_EXPAND2(JERBOA_EXPAND2(JERBOA_EXPAND2(JERBOA_EXPAND2(__VA_ARGS__))))
#define JERBOA_EXPAND2(...) JERBOA_EXPAND1(JERBOA_EXPAND1(JERBOA_EXPAND1(JERBOA_EXPAND1(__VA_ARGS__))))
#define JERBOA_EXPAND1(...) __VA_ARGS__
#define JERBOA_FOR_EACH(macro, ...) __VA_OPT__(JERBOA_EXPAND(JERBOA_FOR_EACH_STEP(macro, __VA_ARGS__)))
#define JERBOA_FOR_EACH_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(JERBOA_FOR_EACH_AGAIN JERBOA_PARENS(macro, __VA_ARGS__))
#define JERBOA_FOR_EACH_AGAIN() JERBOA_FOR_EACH_STEP
