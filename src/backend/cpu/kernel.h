#pragma once

#include <memory>
#include <vector>

#include <jerboa/lower/program.h>

#include "backend/cpu/thread_pool.h"
#include "backend/cpu/tile_machine.h"

namespace jerboa::cpu {

/// The resources of kernels: threads, and scratch memory for each of them.
struct Workers {
  explicit Workers(int threads, bool uses_integers = false)
      : pool(threads), scratch(static_cast<std::size_t>(pool.size())), integer_products(uses_integers) {}
  TileMemory& of(int worker) { return scratch[static_cast<std::size_t>(worker)]; }

  ThreadPool pool;
  std::vector<TileMemory> scratch;
  bool integer_products;  ///< CpuOptions::integer_products
};

/// A kernel whose sizes are known, ready to run on bound memory.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const std::vector<Memory>& memory, Workers& workers) = 0;

  /// A kernel of independent tasks can run together with others.
  virtual std::int64_t tasks() const { return 0; }
  virtual void run_task(std::int64_t, const std::vector<Memory>&, TileMemory&) {}
  /// Whether all tasks together take less time than handing some of them to another thread.
  virtual bool is_small() const { return false; }
};

/// Prepares a kernel for given values of its symbols.
std::unique_ptr<Kernel> prepare(const KernelSpec& kernel, const SymbolValues& symbols);

std::unique_ptr<Kernel> prepare_loop(const KernelSpec& kernel, const SymbolValues& symbols);
std::unique_ptr<Kernel> prepare_reduce(const KernelSpec& kernel, const SymbolValues& symbols);
std::unique_ptr<Kernel> prepare_matmul(const KernelSpec& kernel, const SymbolValues& symbols);
std::unique_ptr<Kernel> prepare_whole(const KernelSpec& kernel, const SymbolValues& symbols);

}  // namespace jerboa::cpu
