// Included inside a namespace, once per instruction set.

/// Calls f(0), f(1), … with constants, so that arrays that f indexes stay in registers.
template <int count, class Function>
HWY_INLINE void repeat(Function&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, count>());
}
