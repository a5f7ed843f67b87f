#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include <jerboa/lower/lower.h>

#include "base/browser_build.h"
#include "lower/bindable.h"
#include "lower/concat_results.h"
#include "lower/emit.h"
#include "lower/expand.h"
#include "lower/fuse.h"
#include "lower/in_place.h"
#include "lower/plan.h"
#include "lower/pool_updates.h"
#include "lower/split.h"
#include "lower/views.h"

namespace jerboa {
namespace {

// Prints the stages that JERBOA_DUMP lists, each with the time since the last one.
class Stages {
 public:
  template <class Text>
  void done(const char* stage, Text&& text) {
    if (detail::is_browser_build || wanted_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    const double milliseconds = std::chrono::duration<double, std::milli>(now - last_).count();
    if (std::string_view(wanted_).find(stage) != std::string_view::npos)
      fmt::print(stderr, "--- {} ({:.2f} ms)\n{}", stage, milliseconds, text());
    last_ = std::chrono::steady_clock::now();
  }

 private:
  const char* wanted_ = std::getenv("JERBOA_DUMP");
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

Program lower(const Graph& graph, const Target& target) {
  Stages stages;
  // 1. Blocks become element-wise ops, reductions and views.
  Graph primitive = detail::expand(graph, target);
  // 2. Concatenations that no kernel could bind are split, and shape ops become strides over their operand's memory.
  const Graph viewed =
      detail::make_views_possible(detail::join_reshapes(detail::split_concats(std::move(primitive), target)));
  stages.done("ir", [&] { return print(viewed); });
  // 3. Nodes become kernels.
  const detail::Fusion fusion = detail::fuse(viewed, target);
  Program program = detail::emit(viewed, fusion, target);
  stages.done("fused", [&] { return print(program); });
  if (target.fuse) detail::write_into_concats(program);
  // 4. Updates of many parameters become one kernel where possible.
  if (target.pool_updates && target.fuse) detail::pool_updates(program, target);
  // 5. Activations get their offsets, reusing the memory of operands that die where possible.
  if (target.plan) detail::take_over_buffers(program);
  detail::refuse_unbindable_tensors(program, viewed, target);
  detail::refuse_tensors_without_room(program, viewed);  // before the plan adds them up, and after
  detail::plan_memory(program, target);
  detail::refuse_tensors_without_room(program, viewed);
  if (!detail::is_browser_build) verify(program, target);
  stages.done("plan", [&] { return print(program) + detail::print_plan(program, target); });
  return program;
}

}  // namespace jerboa
