#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/page_pool.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

TEST(PagePool, CountsReferences) {
  PagePool pool(2, 4);
  const Block block = pool.allocate().value();
  EXPECT_EQ(pool.references(block), 1);
  pool.share(block);
  pool.release(block);
  EXPECT_EQ(pool.used_blocks(), 1);
  pool.release(block);
  EXPECT_EQ(pool.references(block), 0);
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(PagePool, HasEveryBlockOnceAndThenNone) {
  PagePool pool(3, 4);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  pool.release(1);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.statistics().allocations, 4);
  EXPECT_EQ(pool.statistics().refusals, 1);
  EXPECT_EQ(pool.statistics().peak, 3);
}

TEST(PagePool, RoundsPositionsUpToBlocks) {
  const PagePool pool(1, 4);
  EXPECT_EQ(pool.blocks_for(0), 0);
  EXPECT_EQ(pool.blocks_for(4), 1);
  EXPECT_EQ(pool.blocks_for(5), 2);
}

TEST(PagePool, RefusesBlocksWithoutReferences) {
  PagePool pool(2, 4);
  jerboa::test::expect_error<UsageError>([&] { pool.release(0); },
                                         "block 0 of a paged cache with 2 blocks is not in use");
  jerboa::test::expect_error<UsageError>([&] { pool.share(7); }, "block 7");
  jerboa::test::expect_error<UsageError>([] { PagePool(0, 4); }, "at least one block");
}

}  // namespace
}  // namespace jerboa::serving
