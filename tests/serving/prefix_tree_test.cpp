#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/prefix_tree.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

using Tokens = std::vector<std::int32_t>;
using Blocks = std::vector<Block>;

class PrefixTreeTest : public ::testing::Test {
 protected:
  // Computes a text of whole blocks and gives it to the tree, as a sequence does that ends at once.
  Blocks add(const Tokens& tokens, const std::string& name_space = "") {
    PrefixTree::Path path = tree.find(name_space, tokens);
    for (auto at = 2 * static_cast<std::size_t>(path.size()); at < tokens.size(); at += 2) {
      const Block block = pool.allocate().value();
      tree.append(path, std::span(tokens).subspan(at, 2), block);
      pool.release(block);
    }
    return path.blocks();
  }

  PagePool pool{8, 2};
  PrefixTree tree{pool};
};

TEST_F(PrefixTreeTest, FindsTheLongestBeginningInWholeBlocks) {
  const Blocks blocks = add({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5, 6, 7}).blocks(), blocks);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4, 5}).blocks(), (Blocks{blocks[0], blocks[1]}));
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 5}).blocks(), (Blocks{blocks[0]}));
  EXPECT_EQ(tree.find("", Tokens{2, 2}).size(), 0);
  EXPECT_EQ(tree.find("", Tokens{}).size(), 0);
  EXPECT_EQ(tree.statistics().lookups, 6);
  EXPECT_EQ(tree.statistics().hits, 6 + 4 + 2);
}

TEST_F(PrefixTreeTest, SharesACommonBeginning) {
  const Blocks a = add({1, 2, 3, 4}), b = add({1, 2, 5, 6});
  EXPECT_EQ(a[0], b[0]);
  EXPECT_NE(a[1], b[1]);
  EXPECT_EQ(tree.blocks(), 3);
  EXPECT_EQ(pool.used_blocks(), 3);
}

TEST_F(PrefixTreeTest, NameSpacesNeverShare) {
  add({1, 2, 3, 4}, "llama");
  EXPECT_EQ(tree.find("llama + adapter", Tokens{1, 2, 3, 4}).size(), 0);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4}).size(), 0);
  EXPECT_EQ(tree.find("llama", Tokens{1, 2, 3, 4}).size(), 2);
}

TEST_F(PrefixTreeTest, GivesTheBlockThatItHasAlready) {
  const Blocks first = add({1, 2});
  PrefixTree::Path path = tree.find("", Tokens{});
  const Block copy = pool.allocate().value();
  EXPECT_EQ(tree.append(path, Tokens{1, 2}, copy), first[0]);
  EXPECT_EQ(pool.references(copy), 1);
  pool.release(copy);
}

TEST_F(PrefixTreeTest, EvictsTheLeastRecentlyUsedLeafFirst) {
  add({1, 2, 3, 4});
  add({5, 6});
  add({7, 8});
  tree.find("", Tokens{5, 6});  // used again
  EXPECT_EQ(tree.evict(1), 1);
  EXPECT_EQ(tree.find("", Tokens{1, 2, 3, 4}).size(), 1) << "the leaf goes before its parent";
  EXPECT_EQ(tree.evict(1), 1);
  EXPECT_EQ(tree.find("", Tokens{7, 8}).size(), 0);
  EXPECT_EQ(tree.find("", Tokens{5, 6}).size(), 1);
  EXPECT_EQ(tree.evict(9), 2);
  EXPECT_EQ(tree.statistics().evictions, 4);
  EXPECT_EQ(pool.used_blocks(), 0);
}

TEST_F(PrefixTreeTest, KeepsBlocksInUse) {
  add({1, 2, 3, 4, 5, 6});
  {
    const PrefixTree::Path path = tree.find("", Tokens{1, 2, 3, 4});
    EXPECT_EQ(tree.reclaimable(), 1);
    EXPECT_EQ(tree.evict(9), 1);
    tree.clear();
    EXPECT_EQ(tree.blocks(), 2);
  }
  EXPECT_EQ(tree.reclaimable(), 2);
  tree.clear();
  EXPECT_EQ(pool.used_blocks(), 0);
}

TEST_F(PrefixTreeTest, ABlockOutlivesItsEviction) {
  const Blocks blocks = add({1, 2});
  pool.share(blocks[0]);
  tree.clear();
  EXPECT_EQ(pool.references(blocks[0]), 1);
  pool.release(blocks[0]);
}

TEST_F(PrefixTreeTest, TakesWholeBlocksOnly) {
  PrefixTree::Path path = tree.find("", Tokens{}), nowhere;
  jerboa::test::expect_error<UsageError>([&] { tree.append(path, Tokens{1}, 0); },
                                         "whole blocks of 2 tokens, not by 1");
  jerboa::test::expect_error<UsageError>([&] { tree.append(nowhere, Tokens{1, 2}, 0); }, "whole blocks");
}

TEST(PrefixTreeWithStates, IsFoundWhereThereIsASnapshot) {
  PagePool pool(8, 2);
  StateSlots slots(2);
  PrefixTree tree(pool, true);
  const Tokens tokens = {1, 2, 3, 4, 5, 6};
  {
    PrefixTree::Path path = tree.find("", tokens);
    for (std::size_t at = 0; at < 6; at += 2) {
      const Block block = pool.allocate().value();
      tree.append(path, std::span(tokens).subspan(at, 2), block);
      pool.release(block);
      if (at == 2) tree.keep_state(path, StateSlot(slots, slots.allocate().value()));
    }
  }
  EXPECT_EQ(tree.find("", tokens).size(), 2);
  EXPECT_EQ(tree.find("", tokens).state(), 0);
  EXPECT_EQ(tree.find("", std::span(tokens).first(3)).size(), 0);
  EXPECT_TRUE(tree.evict_state());
  EXPECT_FALSE(tree.evict_state());
  EXPECT_EQ(tree.find("", tokens).size(), 0);
  EXPECT_EQ(slots.used_slots(), 0);
  EXPECT_EQ(tree.blocks(), 3);
}

TEST(PrefixTreeWithStates, ANodeTakesItsSnapshotWithIt) {
  PagePool pool(8, 1);
  StateSlots slots(3);
  PrefixTree tree(pool, true);
  for (std::int32_t token = 0; token < 3; ++token) {
    PrefixTree::Path path = tree.find("", {});
    const Block block = pool.allocate().value();
    tree.append(path, Tokens{token}, block);
    pool.release(block);
    tree.keep_state(path, StateSlot(slots, slots.allocate().value()));
  }
  EXPECT_EQ(tree.find("", Tokens{0}).state(), 0);
  EXPECT_TRUE(tree.evict_state());  // token 1's, now the least recently used
  EXPECT_EQ(tree.find("", Tokens{1}).size(), 0);
  EXPECT_EQ(slots.used_slots(), 2);
  tree.clear();
  EXPECT_EQ(slots.used_slots(), 0);
  EXPECT_FALSE(tree.evict_state());
}

}  // namespace
}  // namespace jerboa::serving
