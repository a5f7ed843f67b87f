#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jerboa/serving/page_pool.h>
#include <jerboa/serving/state_slots.h>

namespace jerboa::serving {

struct PrefixTreeStatistics {
  std::int64_t lookups = 0;
  std::int64_t tokens = 0;                            ///< looked up
  std::int64_t hits = 0;                              ///< tokens that were found
  std::int64_t evictions = 0;                         ///< of nodes
  std::vector<std::int64_t> windowed_evictions = {};  ///< of blocks of layers with windows alone, by group
};

/// The blocks of earlier texts, found by their tokens. Each node below a root is one whole block, and the path to it
/// from the root spells its tokens; the tree holds a reference to every block in it. Nodes that no sequence uses are
/// evicted when the pool runs short, the least recently used leaf first.
///
/// Layers with windows have separate blocks in a node, which may be missing: a text can continue at a node if the
/// preceding blocks that its windows see are present. They are dropped one by one, starting with those where no text
/// has ended or continued.
///
/// Texts in different name spaces never share: a name space stands for everything else that the cache depends on, such
/// as the model and the adapter.
/// model and the adapter.
class PrefixTree {
  struct Node;

 public:
  /// A position in the tree that a sequence uses: neither it nor its ancestors are evicted while the path exists.
  class Path {
   public:
    Path() = default;
    Path(Path&& other) noexcept : tree_(other.tree_), node_(std::exchange(other.node_, nullptr)) {}
    Path& operator=(Path&& other) noexcept;
    ~Path() { reset(); }

    void reset();
    explicit operator bool() const { return node_ != nullptr; }
    /// The number of blocks from the root.
    int size() const;
    /// The blocks from the root.
    std::vector<Block> blocks() const;
    /// The blocks of layers with a window that are visible from the end of the path, and `more` before them if present,
    /// in a list as long as blocks(), with no_block before them.
    std::vector<Block> windowed(std::size_t group, int more = 0) const;
    /// The block of the last node for such layers, or no_block.
    Block last_windowed(std::size_t group) const;
    /// The snapshot of the recurrent states at the end of the path, or no_slot.
    std::int32_t state() const;

   private:
    friend class PrefixTree;
    Path(PrefixTree& tree, Node& node) : tree_(&tree), node_(&node) { tree.pin(node); }

    PrefixTree* tree_ = nullptr;
    Node* node_ = nullptr;
  };

  /// `needs_states`: the model has recurrent layers, so that a prefix can only be continued where there is a snapshot
  /// of their states.
  explicit PrefixTree(PagePool& pool, bool needs_states = false, const WindowedPools* windowed = nullptr)
      : pool_(&pool), needs_states_(needs_states), windowed_(windowed), kept_(windowed ? windowed->size() : 0) {
    statistics_.windowed_evictions.resize(kept_.size());
  }
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;
  /// All paths must have been destroyed.
  ~PrefixTree();

  /// The longest known prefix of a text, in whole blocks.
  Path find(std::string_view name_space, std::span<const std::int32_t> tokens);
  /// The longest prefix whose blocks are in the tree, even if no text can continue from its end; the end of find() also
  /// has the blocks that windows see, and states.
  Path longest(std::string_view name_space, std::span<const std::int32_t> tokens);
  /// Continues a path by one whole block. If the tree already has a block with these tokens, the path continues there,
  /// and that block is returned, which the caller should use instead; otherwise `block` itself, which the tree shares
  /// from now on. `windowed` has a block, or no_block, for each group of layers with windows; the tree shares those
  /// that it lacks.
  Block append(Path& path, std::span<const std::int32_t> tokens, Block block, std::span<const Block> windowed = {});
  /// Hints that other texts are likely to continue from the end of this path: the blocks that windows see there are
  /// dropped late.
  void keep_end(const Path& path);
  /// Keeps a snapshot of the recurrent states at the end of a path, unless there is one already.
  void keep_state(Path& path, StateSlot slot);

  /// Evicts unused leaves until this many blocks have left the tree or none is left; returns how many have.
  int evict(int blocks);
  /// Drops blocks of layers with a window that only the tree holds, until this many are free or none is left; returns
  /// how many were dropped.
  int evict_windowed(std::size_t group, int blocks);
  /// How many blocks evict_windowed could free.
  int reclaimable_windowed(std::size_t group) const;
  /// Evicts the least recently used snapshot of states; false if there is none.
  bool evict_state();
  /// Evicts everything that no sequence uses.
  void clear();

  /// The blocks in the tree, and those of them that evict can free.
  int blocks() const { return blocks_; }
  int reclaimable() const { return reclaimable_; }
  const PrefixTreeStatistics& statistics() const { return statistics_; }

 private:
  struct TokenOrder {
    using is_transparent = void;
    bool operator()(std::span<const std::int32_t> a, std::span<const std::int32_t> b) const;
  };
  struct Node {
    Node* parent = nullptr;
    const std::vector<std::int32_t>* tokens = nullptr;  // its key among its parent's children
    std::map<std::vector<std::int32_t>, std::unique_ptr<Node>, TokenOrder> children = {};
    Block block = 0;
    int depth = 0;                // in blocks
    int users = 0;                // paths that end here or below
    std::uint64_t last_used = 0;  // when the last of them ended
    StateSlot state = {};
    std::uint64_t state_used = 0;
    struct Kept {
      Block block = no_block;
      /// Eviction order: the time of insertion; with is_end set, the time when a text that sees the block last ended or
      /// continued.
      std::uint64_t worth = 0;
    };
    std::vector<Kept> windowed = {};  // by group
  };
  static constexpr std::uint64_t is_end = std::uint64_t{1} << 63;
  using ByUse = std::set<std::pair<std::uint64_t, Node*>>;

  Node& root_of(std::string_view name_space);
  static Node* child_of(const Node& node, std::span<const std::int32_t> tokens);
  void pin(Node& node);
  void unpin(Node& node);
  bool is_idle_leaf(const Node& node) const { return node.parent && node.users == 0 && node.children.empty(); }
  void touch_state(Node& node);
  std::size_t groups() const { return kept_.size(); }
  bool can_continue(const std::vector<int>& there, int depth) const;
  void keep_windowed(Node& node, std::size_t group, Block block);
  void drop_windowed(Node& node, std::size_t group);
  void keep_end(Node& node);
  void remove(Node& leaf);

  PagePool* pool_;
  bool needs_states_;
  const WindowedPools* windowed_;
  std::vector<ByUse> kept_;  // by group, the least valuable first
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  ByUse idle_leaves_, states_;
  std::uint64_t clock_ = 0;
  int blocks_ = 0, reclaimable_ = 0;
  PrefixTreeStatistics statistics_;
};

}  // namespace jerboa::serving
