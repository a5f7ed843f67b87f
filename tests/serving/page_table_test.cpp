#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/page_table.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

using Blocks = std::vector<Block>;
using Copies = std::vector<BlockCopy>;

TEST(PageTable, GrowsBlockByBlock) {
  PagePool pool(4, 4);
  PageTable table(pool);
  Copies copies;
  EXPECT_TRUE(table.append(3, copies));
  EXPECT_TRUE(table.append(1, copies));
  EXPECT_EQ(table.blocks(), (Blocks{0}));
  EXPECT_TRUE(table.append(5, copies));
  EXPECT_EQ(table.blocks(), (Blocks{0, 1, 2}));
  EXPECT_EQ(table.length(), 9);
  EXPECT_TRUE(copies.empty());
}

TEST(PageTable, RunningOutOfBlocksChangesNothing) {
  PagePool pool(2, 4);
  PageTable table(pool);
  Copies copies;
  EXPECT_TRUE(table.append(5, copies));
  EXPECT_FALSE(table.append(4, copies));
  EXPECT_EQ(table.length(), 5);
  EXPECT_TRUE(table.append(3, copies));
}

TEST(PageTable, TruncatingReleasesWholeBlocks) {
  PagePool pool(3, 4);
  PageTable table(pool);
  Copies copies;
  table.append(12, copies);
  table.truncate(5);
  EXPECT_EQ(table.blocks(), (Blocks{0, 1}));
  EXPECT_EQ(pool.free_blocks(), 1);
  table.truncate(7);  // longer than it is
  EXPECT_EQ(table.length(), 5);
  table.truncate(0);
  EXPECT_EQ(pool.free_blocks(), 3);
}

TEST(PageTable, AForkCopiesItsLastBlockBeforeItWritesThere) {
  PagePool pool(4, 4);
  PageTable table(pool);
  Copies copies;
  table.append(6, copies);
  PageTable fork = table.fork();
  EXPECT_EQ(fork.blocks(), table.blocks());
  EXPECT_EQ(pool.used_blocks(), 2);
  EXPECT_EQ(fork.blocks_to_append(1), 1);
  EXPECT_TRUE(fork.append(1, copies));
  EXPECT_EQ(copies, (Copies{{1, 2}}));
  EXPECT_EQ(fork.blocks(), (Blocks{0, 2}));
  // The other one has its block to itself now.
  EXPECT_EQ(table.blocks_to_append(1), 0);
  EXPECT_TRUE(table.append(1, copies));
  EXPECT_EQ(copies.size(), 1u);
}

TEST(PageTable, AForkOfWholeBlocksCopiesNothing) {
  PagePool pool(4, 4);
  PageTable table(pool);
  Copies copies;
  table.append(8, copies);
  PageTable fork = table.fork();
  EXPECT_TRUE(fork.append(1, copies));
  EXPECT_TRUE(table.append(1, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(fork.blocks(), (Blocks{0, 1, 2}));
  EXPECT_EQ(table.blocks(), (Blocks{0, 1, 3}));
}

TEST(PageTable, ACopyNeedsABlockToo) {
  PagePool pool(2, 4);
  PageTable table(pool);
  Copies copies;
  table.append(6, copies);
  {
    PageTable fork = table.fork();
    EXPECT_FALSE(fork.append(1, copies));
    EXPECT_EQ(fork.blocks(), table.blocks());
  }
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(pool.references(1), 1);
}

TEST(PageTable, SharesWholeBlocksOfOthers) {
  PagePool pool(3, 4);
  PageTable table(pool), other(pool);
  Copies copies;
  table.append(8, copies);
  other.append_shared(0);
  EXPECT_EQ(other.length(), 4);
  other.append(1, copies);
  EXPECT_EQ(other.blocks(), (Blocks{0, 2}));
  jerboa::test::expect_error<UsageError>([&] { other.append_shared(1); }, "only be appended to whole blocks");
  other.truncate(4);
  other.append_shared(1);
  other.replace(0, 1);
  EXPECT_EQ(other.blocks(), (Blocks{1, 1}));
  EXPECT_EQ(pool.references(0), 1);
  EXPECT_EQ(pool.references(1), 3);
}

TEST(PageTable, MovesAndLeavesNothingBehind) {
  PagePool pool(4, 4);
  Copies copies;
  {
    PageTable a(pool), b(pool);
    a.append(8, copies);
    b.append(4, copies);
    b = std::move(a);
    EXPECT_EQ(b.length(), 8);
    EXPECT_EQ(pool.used_blocks(), 2);
  }
  EXPECT_EQ(pool.used_blocks(), 0);
}

}  // namespace
}  // namespace jerboa::serving
