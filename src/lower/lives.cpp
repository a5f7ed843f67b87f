#include "lower/lives.h"

#include <algorithm>
#include <limits>
#include <map>

namespace jerboa::detail {

namespace {

// A buffer and those within it are live as long as any of them.
void share_lives(const Program& program, std::vector<Life>& lives) {
  for (std::size_t i = 0; i < lives.size(); ++i) {
    if (program.buffers[i].within < 0) continue;
    Life& whole = lives[static_cast<std::size_t>(program.buffers[i].within)];
    whole = {std::min(whole.first, lives[i].first), std::max(whole.last, lives[i].last)};
  }
  for (std::size_t i = 0; i < lives.size(); ++i)
    if (program.buffers[i].within >= 0) lives[i] = lives[static_cast<std::size_t>(program.buffers[i].within)];
}

}  // namespace

std::vector<Life> lives_of(const Program& program) {
  std::vector<Life> lives(program.buffers.size(), {std::numeric_limits<int>::max(), -1});
  for (std::size_t i = 0; i < program.cpu.dispatches.size(); ++i)
    for (const Dispatch::Part& part : program.cpu.dispatches[i].parts)
      for (const int number : part.buffers) {
        Life& life = lives[static_cast<std::size_t>(number)];
        life.first = std::min(life.first, static_cast<int>(i));
        life.last = std::max(life.last, static_cast<int>(i));
      }
  for (const auto* list : {&program.outputs, &program.captures})
    for (const Readable& readable : *list)
      lives[static_cast<std::size_t>(readable.buffer)].last = static_cast<int>(program.cpu.dispatches.size());
  share_lives(program, lives);
  return lives;
}

void find_lives(Program& program) {
  const std::vector<Life> lives = lives_of(program);
  for (std::size_t i = 0; i < lives.size(); ++i) {
    program.buffers[i].first = lives[i].first;
    program.buffers[i].last = lives[i].last;
  }
}

std::int64_t max_live_bytes(const Program& program) {
  std::map<int, std::int64_t> change;  // by dispatch: bytes that become live minus bytes that die
  for (const Buffer& buffer : program.buffers) {
    if (buffer.where != Buffer::Where::arena || buffer.within >= 0 || buffer.last < buffer.first) continue;
    change[buffer.first] += buffer.bytes;
    change[buffer.last + 1] -= buffer.bytes;
  }
  std::int64_t live = 0, most = 0;
  for (const auto& [dispatch, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

std::vector<bool> read_bindings(const KernelSpec& kernel) {
  std::vector<bool> read(static_cast<std::size_t>(kernel.bindings), false);
  for (const Load& load : kernel.loads) read[static_cast<std::size_t>(load.binding)] = true;
  for (const TensorAccess& operand : kernel.operands)
    if (operand.binding >= 0) read[static_cast<std::size_t>(operand.binding)] = true;
  return read;
}

}  // namespace jerboa::detail

namespace jerboa {

int root_of(const ProgramMemory& memory, int buffer) {
  const int within = memory.buffers[static_cast<std::size_t>(buffer)].within;
  return within < 0 ? buffer : within;
}

std::vector<bool> written_bindings(const KernelSpec& kernel) {
  std::vector<bool> written(static_cast<std::size_t>(kernel.bindings), false);
  for (const Store& store : kernel.stores) written[static_cast<std::size_t>(store.binding)] = true;
  for (const TensorAccess& result : kernel.results)
    if (result.binding >= 0) written[static_cast<std::size_t>(result.binding)] = true;
  return written;
}

}  // namespace jerboa
