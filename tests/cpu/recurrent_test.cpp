#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>

#include "support/recurrent_checks.h"

namespace jerboa::cpu::recurrent_test {
namespace {

TEST(Recurrence, InPiecesEqualsTheWhole) {
  CpuOptions options;
  options.threads = 2;
  options.guard = true;
  test::expect_pieces_equal_the_whole(Device(make_cpu_backend(options)));
}

}  // namespace
}  // namespace jerboa::cpu::recurrent_test
