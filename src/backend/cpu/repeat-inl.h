// Included inside a namespace, once per instruction set.

/// f(0), f(1), … as constants, so that what f indexes stays in registers.
template <int count, class Function>
HWY_INLINE void repeat(Function&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, count>());
}
