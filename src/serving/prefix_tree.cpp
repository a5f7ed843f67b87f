#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/prefix_tree.h>

namespace jerboa::serving {

bool PrefixTree::TokenOrder::operator()(std::span<const std::int32_t> a, std::span<const std::int32_t> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixTree::Path& PrefixTree::Path::operator=(Path&& other) noexcept {
  if (this == &other) return *this;
  reset();
  tree_ = other.tree_;
  node_ = std::exchange(other.node_, nullptr);
  return *this;
}

void PrefixTree::Path::reset() {
  if (node_ != nullptr) tree_->unpin(*std::exchange(node_, nullptr));
}

int PrefixTree::Path::size() const { return node_ != nullptr ? node_->depth : 0; }

std::vector<Block> PrefixTree::Path::blocks() const {
  std::vector<Block> out(static_cast<std::size_t>(size()));
  for (const Node* node = node_; node != nullptr && node->parent != nullptr; node = node->parent)
    out[static_cast<std::size_t>(node->depth - 1)] = node->block;
  return out;
}

std::vector<Block> PrefixTree::Path::windowed(std::size_t group, int more) const {
  std::vector<Block> out(static_cast<std::size_t>(size()), no_block);
  int left = node_ != nullptr ? (*tree_->windowed_)[group]->reach() + more : 0;
  for (const Node* node = node_; left-- > 0 && node->parent != nullptr; node = node->parent)
    out[static_cast<std::size_t>(node->depth - 1)] = node->windowed[group].block;
  return out;
}

Block PrefixTree::Path::last_windowed(std::size_t group) const {
  return size() > 0 ? node_->windowed[group].block : no_block;
}

std::int32_t PrefixTree::Path::state() const { return node_ != nullptr ? node_->state.number() : no_slot; }

PrefixTree::~PrefixTree() { clear(); }

void PrefixTree::pin(Node& node) {
  for (Node* at = &node; at->parent != nullptr; at = at->parent) {
    if (is_idle_leaf(*at)) idle_leaves_.erase({at->last_used, at});
    if (at->users++ == 0) --reclaimable_;
  }
}

void PrefixTree::unpin(Node& node) {
  keep_end(node);
  for (Node* at = &node; at->parent != nullptr; at = at->parent) {
    at->last_used = ++clock_;  // later than its descendants, which are evicted first
    if (--at->users > 0) continue;
    ++reclaimable_;
    if (is_idle_leaf(*at)) idle_leaves_.insert({at->last_used, at});
  }
}

PrefixTree::Node& PrefixTree::root_of(std::string_view name_space) {
  auto root = roots_.find(name_space);
  if (root == roots_.end()) root = roots_.emplace(name_space, std::make_unique<Node>()).first;
  return *root->second;
}

PrefixTree::Node* PrefixTree::child_of(const Node& node, std::span<const std::int32_t> tokens) {
  const auto child = node.children.find(tokens);
  return child == node.children.end() ? nullptr : child->second.get();
}

PrefixTree::Path PrefixTree::find(std::string_view name_space, std::span<const std::int32_t> tokens) {
  Node *node = &root_of(name_space), *last = node;
  const auto size = static_cast<std::size_t>(pool_->block_size());
  std::vector<int> there(groups());  // length of the run of present blocks that ends here, by group
  for (std::size_t at = 0; at + size <= tokens.size(); at += size) {
    last = child_of(*last, tokens.subspan(at, size));
    if (last == nullptr) break;
    for (std::size_t group = 0; group < groups(); ++group)
      there[group] = last->windowed[group].block == no_block ? 0 : there[group] + 1;
    if (can_continue(there, last->depth)) node = last;
  }
  while (needs_states_ && node->parent != nullptr && !node->state) node = node->parent;
  if (node->state) touch_state(*node);
  keep_end(*node);
  ++statistics_.lookups;
  statistics_.tokens += std::ssize(tokens);
  statistics_.hits += static_cast<std::int64_t>(node->depth) * pool_->block_size();
  return Path(*this, *node);
}

PrefixTree::Path PrefixTree::longest(std::string_view name_space, std::span<const std::int32_t> tokens) {
  Node* node = &root_of(name_space);
  const auto size = static_cast<std::size_t>(pool_->block_size());
  for (std::size_t at = 0; at + size <= tokens.size(); at += size) {
    Node* const next = child_of(*node, tokens.subspan(at, size));
    if (next == nullptr) break;
    node = next;
  }
  return Path(*this, *node);
}

bool PrefixTree::can_continue(const std::vector<int>& there, int depth) const {
  for (std::size_t group = 0; group < groups(); ++group)
    if (there[group] < std::min((*windowed_)[group]->reach(), depth)) return false;
  return true;
}

void PrefixTree::keep_windowed(Node& node, std::size_t group, Block block) {
  (*windowed_)[group]->pool.share(block);
  node.windowed[group] = {block, ++clock_};
  kept_[group].insert({clock_, &node});
}

void PrefixTree::drop_windowed(Node& node, std::size_t group) {
  const auto kept = std::exchange(node.windowed[group], {});
  if (kept.block == no_block) return;
  kept_[group].erase({kept.worth, &node});
  (*windowed_)[group]->pool.release(kept.block);
}

// Blocks visible from the end of a node are dropped later than those in between.
void PrefixTree::keep_end(Node& node) {
  for (std::size_t group = 0; group < groups(); ++group) {
    int left = (*windowed_)[group]->reach();
    for (Node* at = &node; left-- > 0 && at->parent != nullptr; at = at->parent) {
      Node::Kept& kept = at->windowed[group];
      if (kept.block == no_block) continue;
      kept_[group].erase({kept.worth, at});
      kept.worth = is_end | ++clock_;
      kept_[group].insert({kept.worth, at});
    }
  }
}

void PrefixTree::keep_end(const Path& path) {
  if (path) keep_end(*path.node_);
}

int PrefixTree::evict_windowed(std::size_t group, int blocks) {
  const PagePool& pool = (*windowed_)[group]->pool;
  int dropped = 0;
  for (auto next = kept_[group].begin(); dropped < blocks && next != kept_[group].end();) {
    Node& node = *(next++)->second;
    if (pool.references(node.windowed[group].block) > 1) continue;
    drop_windowed(node, group);
    ++dropped;
  }
  statistics_.windowed_evictions[group] += dropped;
  return dropped;
}

int PrefixTree::reclaimable_windowed(std::size_t group) const {
  const PagePool& pool = (*windowed_)[group]->pool;
  return static_cast<int>(std::count_if(kept_[group].begin(), kept_[group].end(), [&](const auto& kept) {
    return pool.references(kept.second->windowed[group].block) == 1;
  }));
}

Block PrefixTree::append(Path& path, std::span<const std::int32_t> tokens, Block block,
                         std::span<const Block> windowed) {
  if (!path || std::ssize(tokens) != pool_->block_size())
    throw UsageError(fmt::format("a path in the prefix tree continues by whole blocks of {} tokens, not by {}",
                                 pool_->block_size(), tokens.size()));
  Node& node = *path.node_;
  auto child = node.children.find(tokens);
  if (child == node.children.end()) {
    pool_->share(block);
    child =
        node.children.emplace(std::vector<std::int32_t>(tokens.begin(), tokens.end()), std::make_unique<Node>()).first;
    Node& added = *child->second;
    added.parent = &node;
    added.tokens = &child->first;
    added.block = block;
    added.depth = node.depth + 1;
    added.windowed.resize(groups());
    ++blocks_;
    ++reclaimable_;  // until the path pins it below
  } else if (is_idle_leaf(*child->second)) {
    idle_leaves_.erase({child->second->last_used, child->second.get()});
  }
  Node& next = *child->second;
  for (std::size_t group = 0; group < windowed.size(); ++group)
    if (windowed[group] != no_block && next.windowed[group].block == no_block)
      keep_windowed(next, group, windowed[group]);
  if (next.users++ == 0) --reclaimable_;  // its ancestors are already pinned by this path
  path.node_ = &next;
  return next.block;
}

void PrefixTree::touch_state(Node& node) {
  states_.erase({node.state_used, &node});
  node.state_used = ++clock_;
  states_.insert({node.state_used, &node});
}

void PrefixTree::keep_state(Path& path, StateSlot slot) {
  if (path.size() == 0) throw UsageError("the beginning of a text needs no snapshot of states");
  if (!path.node_->state) path.node_->state = std::move(slot);
  touch_state(*path.node_);
}

void PrefixTree::remove(Node& leaf) {
  idle_leaves_.erase({leaf.last_used, &leaf});
  if (leaf.state) states_.erase({leaf.state_used, &leaf});
  for (std::size_t group = 0; group < groups(); ++group) drop_windowed(leaf, group);
  pool_->release(leaf.block);
  --blocks_;
  --reclaimable_;
  Node& parent = *leaf.parent;
  parent.children.erase(parent.children.find(*leaf.tokens));
  if (is_idle_leaf(parent)) idle_leaves_.insert({parent.last_used, &parent});
}

int PrefixTree::evict(int blocks) {
  int evicted = 0;
  for (; evicted < blocks && !idle_leaves_.empty(); ++evicted) remove(*idle_leaves_.begin()->second);
  statistics_.evictions += evicted;
  return evicted;
}

bool PrefixTree::evict_state() {
  if (states_.empty()) return false;
  Node& node = *states_.begin()->second;
  states_.erase(states_.begin());
  node.state.reset();
  return true;
}

void PrefixTree::clear() {
  while (!idle_leaves_.empty()) remove(*idle_leaves_.begin()->second);
}

}  // namespace jerboa::serving
