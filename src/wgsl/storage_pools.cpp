#include "wgsl/storage_pools.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>

#include "base/integers.h"
#include "lower/index.h"
#include "wgsl/refusal.h"

namespace jerboa::wgsl {

using detail::index;

StoragePools::StoragePools(Program& program) : program_(program), parent_(program.buffers.size()) {
  std::iota(parent_.begin(), parent_.end(), 0);
}

void StoragePools::make(const std::set<int>& used, const std::set<int>& written, const Target& target) {
  std::map<int, std::vector<int>> groups;
  for (const int buffer : used) groups[find(buffer)].push_back(buffer);
  std::vector<Pool> pools;
  for (const auto& [parent, members] : groups) {
    const bool is_written =
        std::any_of(members.begin(), members.end(), [&](int member) { return written.contains(member); });
    const bool is_storage = std::all_of(members.begin(), members.end(), [&](int member) {
      return program_.buffers[index(member)].where == Buffer::Where::storage;
    });
    if (members.size() > 1 && !is_storage)
      throw Refusal{"a kernel reads an input where it reads a parameter in another layer"};
    std::int64_t bytes = 0;
    for (const int member : members) bytes += placed_bytes(member, target);
    if (bytes > target.max_binding_bytes) throw Refusal{"its parameters do not fit the bindings of a shader"};
    const auto found = std::find_if(pools.begin(), pools.end(), [&](const Pool& pool) {
      return is_storage && !is_written && pool.is_shared && pool.bytes + bytes <= target.max_binding_bytes;
    });
    if (found == pools.end()) {
      pools.push_back({members, bytes, is_storage && !is_written});
    } else {
      found->members.insert(found->members.end(), members.begin(), members.end());
      found->bytes += bytes;
    }
  }
  for (const Pool& pool : pools) add(pool, target);
  for (const int buffer : written) written_.insert(place(buffer).first);
}

std::pair<int, std::int64_t> StoragePools::place(int buffer) const {
  const Buffer& placed = program_.buffers[index(buffer)];
  return placed.within < 0 ? std::pair(buffer, std::int64_t{0}) : std::pair(placed.within, placed.inside);
}

int StoragePools::find(int buffer) {
  while (parent_[index(buffer)] != buffer) buffer = parent_[index(buffer)] = parent_[index(parent_[index(buffer)])];
  return buffer;
}

std::int64_t StoragePools::placed_bytes(int buffer, const Target& target) const {
  return detail::round_up(program_.buffers[index(buffer)].bytes, target.offset_alignment);
}

void StoragePools::add(const Pool& pool, const Target& target) {
  if (pool.members.size() == 1) return;
  const auto number = static_cast<int>(program_.buffers.size());
  Buffer whole;
  whole.where = Buffer::Where::pool;
  whole.name = fmt::format("the pool of {}", program_.buffers[index(pool.members.front())].name);
  whole.dtype = DType::u32;
  for (const int member : pool.members) {
    Buffer& buffer = program_.buffers[index(member)];
    buffer.within = number;
    buffer.inside = whole.bytes;
    whole.bytes += placed_bytes(member, target);
  }
  whole.elements = whole.bytes / 4;
  program_.buffers.push_back(std::move(whole));
}

}  // namespace jerboa::wgsl
