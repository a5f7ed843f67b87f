#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/integers.h"
#include "wgsl/product/problem.h"
#include "wgsl/product/quantised.h"
#include "wgsl/product/quantised_blocks.h"
#include "wgsl/product/writers.h"
#include "wgsl/tuned.h"

namespace jerboa::wgsl {
namespace {

using Kind = MatmulForm::Kind;

// Sizes at the symbols' upper bounds.
struct Sizes {
  std::int64_t batch, rows, columns, inner;

  explicit Sizes(const MatmulProblem& problem)
      : batch(element_count(problem.batch).upper_bound()),
        rows(problem.rows.upper_bound()),
        columns(problem.columns.upper_bound()),
        inner(problem.inner.upper_bound()) {}
  std::int64_t groups(const MatmulForm& form) const {
    return batch * detail::divide_up(rows, form.rows) * detail::divide_up(columns, form.columns);
  }
  double results() const { return static_cast<double>(batch * rows * columns); }
};

MatmulForm tiles(int rows, int columns, int inner, int part_rows, int part_columns) {
  return {Kind::tiles, rows, columns, inner, part_rows, part_columns};
}

// A form with its cost on an H200, from its time at sizes 1024 to 4096, in µs: per inner step, for each additional
// workgroup per multiprocessor, and the fixed cost of a step. Only the ratios matter.
struct MeasuredForm {
  MatmulForm form;
  double workgroup, latency;
};

// The cost of a second shader that sums chunks, in µs: to wait for the first and to launch, and to write and read a
// partial result.
constexpr double second_shader = 7, partial_result = 2.7e-6;

double multiprocessors_of(const Target& target) {
  constexpr double unknown = 64;
  return target.resident_workgroups > 0 ? target.resident_workgroups / 2.0 : unknown;
}

std::int64_t bytes_of(const Target& target, const MatmulProblem& problem, const MatmulForm& form) {
  return bytes_of_vectors(target, form, problem.rows.upper_bound(), problem.products, problem.row_totals);
}

// The form for a phase, in which every workgroup runs all the time: each has its share of the columns and reads the
// first operand once. None if its threads cannot share a row of weights evenly.
std::optional<MatmulForm> choose_phase_vectors(const Target& target, const Sizes& sizes, const MatmulProblem& problem) {
  constexpr std::int64_t most_reads = 4, most_columns = 12;  // per thread: reads of the first operand, and columns
  // In µs: of each block, until its weights arrive and to add up its sums; of 16 bytes of weights per thread; and of
  // reading as much of the first operand.
  constexpr double block_cost = 0.8, read_cost = 0.25, held_cost = 0.1;
  const std::int64_t bits_of_row = sizes.inner * bits(problem.b->dtype);
  if (bits_of_row % 128 != 0 || sizes.rows > 2) return std::nullopt;
  const std::int64_t reads = bits_of_row / 128;
  const std::int64_t share =
      detail::divide_up(sizes.columns * sizes.batch, std::max<std::int64_t>(1, target.persistent_workgroups));
  std::optional<MatmulForm> best;
  double least = std::numeric_limits<double>::max();
  for (int lanes = 32; lanes <= target.fixed_threads; lanes *= 2) {
    const std::int64_t each = reads / lanes, teams = target.fixed_threads / lanes;
    if (reads % lanes != 0 || each > most_reads) continue;
    for (std::int64_t columns = 1; columns * problem.products <= most_columns; ++columns) {
      const std::int64_t blocks = detail::divide_up(share, teams * columns);
      const auto read = static_cast<double>(each * columns * problem.products);
      const double cost = static_cast<double>(blocks) * (block_cost + read * read_cost) +
                          held_cost * static_cast<double>(each * sizes.rows);
      MatmulForm form{.kind = Kind::vectors};
      form.part_columns = static_cast<int>(columns);
      form.lanes = lanes;
      form.columns = static_cast<int>(teams * columns);
      form.blocks = static_cast<int>(blocks);
      if (cost >= least || bytes_of(target, problem, form) > target.workgroup_bytes) continue;
      least = cost;
      best = form;
    }
  }
  return best;
}

// Multiplies a few rows by weights. A thread reads 16 bytes at a time: a team has as many threads as leave each about
// four reads, or fewer if there are too few columns to keep the device busy, and computes several columns if there are
// more than enough.
MatmulForm choose_vectors(const Target& target, const Sizes& sizes, const MatmulProblem& problem) {
  constexpr std::int64_t enough_reads = 4, most_share = 8;
  MatmulForm form{.kind = Kind::vectors};
  form.part_columns = 1;
  if (has_phases && target.fixed_threads > 0)
    if (const std::optional<MatmulForm> phase = choose_phase_vectors(target, sizes, problem)) return *phase;
  if (target.software) {
    form.columns = 1;
    return form;
  }
  const std::int64_t reads = detail::divide_up(sizes.inner * bits(problem.b->dtype), 128);
  const auto reads_of_each = [&](std::int64_t share) { return detail::divide_up(reads, share * form.lanes); };
  std::int64_t share = 1;  // groups of `lanes` threads in a team
  while (share < most_share && reads_of_each(share) > enough_reads) share *= 2;
  // Numbers of 32-thread groups per multiprocessor; measured on an H200.
  constexpr double busy = 31, many = 8 * 32, very_many = 32 * 32;
  const double multiprocessors = multiprocessors_of(target);
  const std::int64_t columns = sizes.batch * sizes.columns * problem.products;
  const auto teams = [&] { return static_cast<double>(columns * share) / multiprocessors; };
  if (share < most_share && reads_of_each(share) > 1 && teams() < busy) share *= 2;
  form.part_columns = teams() >= very_many ? 4 : teams() >= many ? 2 : 1;
  if (sizes.rows > 1 || problem.products > 1) form.part_columns = std::min(form.part_columns, 2);
  form.lanes *= static_cast<int>(share);
  const bool in_phases = has_phases && target.fixed_threads > 0;
  int threads = std::min(in_phases ? target.fixed_threads : 256, target.max_invocations);
  form.lanes = std::min(form.lanes, threads);
  const auto set_columns = [&] { form.columns = threads / form.lanes * form.part_columns; };
  set_columns();
  while (bytes_of(target, problem, form) > target.workgroup_bytes) {
    if (form.part_columns > 1)
      form.part_columns /= 2;
    else if (threads > 32 && !in_phases)
      form.lanes = std::min(form.lanes, threads /= 2);
    else
      break;
    set_columns();
  }
  return form;
}

// The cheapest of some forms, whole or with the inner dimension in chunks.
class Cheapest {
 public:
  Cheapest(const Target& target, const Sizes& sizes) : target_(target), sizes_(sizes) {}

  void consider(const MeasuredForm& measured) {
    const MatmulForm& form = measured.form;
    if (form.threads() > target_.max_invocations || form.workgroup_bytes() > target_.workgroup_bytes) return;
    const double multiprocessors = multiprocessors_of(target_);
    for (std::int64_t chunks = 1; chunks <= 16; ++chunks) {
      const std::int64_t steps = detail::divide_up(detail::divide_up(sizes_.inner, chunks), form.inner);
      if (chunks > 1 && steps * form.inner < shortest_chunk) break;
      const double each = std::ceil(static_cast<double>(sizes_.groups(form) * chunks) / multiprocessors);
      double cost = static_cast<double>(steps) * (each * measured.workgroup + measured.latency);
      if (chunks > 1) cost += second_shader + sizes_.results() * static_cast<double>(chunks) * partial_result;
      if (cost >= least_) continue;
      least_ = cost;
      form_ = form;
      form_->chunks = chunks;
    }
  }
  const std::optional<MatmulForm>& form() const { return form_; }

 private:
  static constexpr std::int64_t shortest_chunk = 128;
  const Target& target_;
  const Sizes& sizes_;
  std::optional<MatmulForm> form_;
  double least_ = std::numeric_limits<double>::max();
};

// The form for large products of f32.
std::optional<MatmulForm> choose_two_buffers(const Target& target, const Sizes& sizes) {
  const auto in_two_buffers = [](int rows, int columns) {
    MatmulForm form = tiles(rows, columns, 8, 8, 8);
    form.two_buffers = true;
    form.padding = 0;  // no faster with padding, and without it they fit the 16 KiB that every device has
    return form;
  };
  static const MeasuredForm forms[] = {{in_two_buffers(128, 128), 0.73, 0.14},
                                       {in_two_buffers(128, 64), 0.375, 0.12},
                                       {in_two_buffers(64, 64), 0.196, 0.15}};
  Cheapest cheapest(target, sizes);
  for (const MeasuredForm& measured : forms) cheapest.consider(measured);
  return cheapest.form();
}

// The form for products of f32 that fill the device a few times over at most, as when training small models, if they
// are large enough for it: workgroups of eight teams, whose threads compute parts of 8x8 each. On an H200 a training
// step of a GPT took 1.44 to 1.47 ms with it, and 1.49 to 1.59 ms with the forms below; with two buffers, or with tiles
// fetched further ahead, whose code is longer, it took 1.52 to 1.75 ms.
std::optional<MatmulForm> choose_eight_teams(const Target& target, const Sizes& sizes) {
  constexpr double enough = 1.5e5;  // multiplications per multiprocessor
  constexpr std::int64_t long_inner = 1024;
  MatmulForm form = tiles(32, 64, 32, 8, 8);
  form.padding = 0;
  form.unrolled = true;
  form.teams = 8;
  const double multiprocessors = multiprocessors_of(target), groups = static_cast<double>(sizes.groups(form));
  // If most multiprocessors have no workgroup, the sums of others are split into chunks.
  const bool has_groups = groups >= multiprocessors || (groups * 5 >= multiprocessors && sizes.inner <= long_inner);
  if (sizes.results() * static_cast<double>(sizes.inner) < enough * multiprocessors || !has_groups ||
      form.threads() > target.max_invocations || form.workgroup_bytes() > target.workgroup_bytes)
    return std::nullopt;
  return form;
}

// The form for smaller products of f32. Workgroups have as many threads as those of sums and norms, so that independent
// ones share a dispatch.
std::optional<MatmulForm> choose_medium(const Target& target, const Sizes& sizes, bool a_along_inner) {
  const auto unrolled = [](MatmulForm form) {
    form.unrolled = true;
    form.padding = 0;
    return form;
  };
  const auto in_teams = [](MatmulForm form, int teams) {
    form.teams = teams;
    return form;
  };
  // Larger parts of results need fewer loads from workgroup memory, but keep fewer global loads in flight if the first
  // operand is transposed on the way.
  static const MeasuredForm alike[] = {{unrolled(tiles(64, 64, 16, 8, 4)), 0.43, 0.1},
                                       {in_teams(tiles(32, 32, 32, 4, 4), 2), 0.33, 0.02}};
  static const MeasuredForm along_inner = {tiles(32, 64, 32, 4, 4), 0.47, 0.14};
  static const MeasuredForm across = {unrolled(in_teams(tiles(32, 64, 32, 8, 4), 2)), 0.42, 0.12};
  Cheapest cheapest(target, sizes);
  for (const MeasuredForm& measured : alike) cheapest.consider(measured);
  cheapest.consider(a_along_inner ? along_inner : across);
  return cheapest.form();
}

MatmulForm choose_tiles(const Target& target, const Sizes& sizes, const MatmulProblem& problem) {
  const bool halves = problem.halves;
  // Large tiles have more reuse; small ones keep a device busy.
  constexpr std::int64_t enough_groups = 128, enough_groups_in_chunks = 256;
  // A short product is better split into smaller tiles than into chunks, which need a second shader.
  constexpr std::int64_t short_inner = 512;
  const bool is_short = sizes.inner <= short_inner, is_thin = sizes.rows <= 32 || sizes.columns <= 32;
  constexpr double large = 4e6;  // per multiprocessor
  if (!halves && !is_thin) {
    const bool is_large = sizes.results() * static_cast<double>(sizes.inner) >= large * multiprocessors_of(target);
    if (!is_large)
      if (const std::optional<MatmulForm> form = choose_eight_teams(target, sizes)) return *form;
    if (const std::optional<MatmulForm> form =
            is_large ? choose_two_buffers(target, sizes) : choose_medium(target, sizes, problem.a_inner == Dim(1)))
      return *form;
  }
  MatmulForm form = tiles(128, 128, 16, 8, 8);
  if (sizes.groups(form) < enough_groups) form = tiles(128, 64, 16, 8, 4);
  if (sizes.groups(form) < enough_groups) form = tiles(64, 64, 16, 8, 4);
  // Several small workgroups on each multiprocessor hide each other's latency.
  const MatmulForm smaller = tiles(32, 64, is_short ? 16 : 32, 4, 4);
  if (sizes.groups(form) < enough_groups_in_chunks && (is_short || sizes.groups(smaller) >= enough_groups))
    form = smaller;
  // If nothing else keeps the device busy, the latency of each inner step is exposed: deeper tiles take fewer steps.
  if (sizes.groups(form) < enough_groups / 4 && is_short) form = tiles(32, 32, 32, 4, 4);
  if (!halves && form == tiles(32, 32, 32, 4, 4)) form.teams = 2;
  if (is_thin) form = tiles(32, 32, 16, 4, 4);
  if (form.workgroup_bytes(halves ? 2 : 4) > target.workgroup_bytes) {
    form.inner /= 2;
    form.teams = 1;
  }
  if (sizes.groups(form) < enough_groups && !is_short)
    while (sizes.groups(form) * form.chunks < enough_groups_in_chunks && sizes.inner / (form.chunks * 2) >= 128 &&
           form.chunks < 64)
      form.chunks *= 2;
  return form;
}

MatmulForm matrices(int rows, int columns, int part_rows, int part_columns) {
  MatmulForm form{Kind::matrices, rows, columns, 32, part_rows, part_columns, 8};
  form.ahead = rows * columns >= 128 * 128 ? 1 : 0;  // smaller ones are faster without
  return form;
}

// Workgroups on matrices run in rounds. For each form: how many workgroups are resident relative to the largest tile,
// and µs per step on an H200, at full occupancy and at least, when a multiprocessor has few.
struct MatrixForm {
  MatmulForm form;
  double residents, step, latency;

  // µs per step of all rounds, the last of which may not fill each multiprocessor.
  double steps_of_rounds(double workgroups, double multiprocessors) const {
    const double each = 2 * residents, all = each * multiprocessors, full = std::floor(workgroups / all);
    const double rest = std::ceil((workgroups - full * all) / multiprocessors);
    return full * step + (rest > 0 ? latency + (step - latency) * std::min(1.0, rest / each) : 0);
  }
};

std::optional<MatmulForm> choose_matrices(const Target& target, const Sizes& sizes) {
  static const MatrixForm forms[] = {{matrices(128, 128, 64, 64), 1, 0.88, 0.88},
                                     {matrices(128, 64, 64, 32), 1, 0.69, 0.69},
                                     {matrices(64, 64, 32, 32), 1.5, 0.59, 0.2},
                                     {matrices(32, 64, 16, 32), 1.5, 0.45, 0.2}};
  constexpr double begin_and_end = 6;  // overhead of a round, in steps
  std::optional<MatmulForm> best;
  double least = std::numeric_limits<double>::max();
  for (const MatrixForm& form : forms) {
    if (form.form.workgroup_bytes() > target.workgroup_bytes) continue;
    const std::int64_t steps = detail::divide_up(sizes.inner, form.form.inner);
    for (std::int64_t chunks = 1; chunks <= 16; ++chunks) {
      // All chunks have the same length except the last, which must not be empty.
      const std::int64_t length = detail::divide_up(steps, chunks);
      if (detail::divide_up(steps, length) != chunks || (chunks > 1 && length < 4)) continue;
      const auto groups = static_cast<double>(sizes.groups(form.form) * chunks);
      double cost =
          (static_cast<double>(length) + begin_and_end) * form.steps_of_rounds(groups, multiprocessors_of(target));
      if (chunks > 1) cost += second_shader + sizes.results() * static_cast<double>(chunks) * partial_result;
      if (cost >= least) continue;
      least = cost;
      best = form.form;
      best->chunks = chunks;
    }
  }
  return best;
}

}  // namespace

std::vector<MatmulForm> tile_forms() {
  enum Style { loop, unrolled, two_buffers };
  const auto form = [](int rows, int columns, int inner, int part_rows, int part_columns, Style style, int teams,
                       int ahead = 0) {
    MatmulForm made = tiles(rows, columns, inner, part_rows, part_columns);
    if (style != loop) made.padding = 0;
    made.unrolled = style == unrolled;
    made.two_buffers = style == two_buffers;
    made.teams = teams;
    made.ahead = ahead;
    return made;
  };
  return {form(32, 64, 32, 8, 8, unrolled, 8),       form(32, 64, 32, 8, 8, unrolled, 8, 1),
          form(32, 64, 32, 8, 8, two_buffers, 8, 1), form(32, 64, 32, 8, 4, unrolled, 4, 1),
          form(32, 64, 32, 8, 4, unrolled, 4, 2),    form(32, 32, 32, 8, 4, unrolled, 8),
          form(128, 128, 8, 8, 8, two_buffers, 1),   form(128, 64, 8, 8, 8, two_buffers, 1),
          form(64, 64, 8, 8, 8, two_buffers, 1),     form(128, 128, 16, 8, 8, loop, 1),
          form(128, 64, 16, 8, 4, loop, 1),          form(64, 64, 16, 8, 4, loop, 1),
          form(64, 64, 16, 8, 4, unrolled, 1),       form(64, 64, 16, 8, 4, two_buffers, 2),
          form(64, 64, 16, 8, 8, two_buffers, 4),    form(32, 64, 16, 4, 4, loop, 1),
          form(32, 64, 32, 4, 4, loop, 1),           form(32, 64, 32, 8, 4, unrolled, 2),
          form(32, 64, 32, 8, 4, unrolled, 4),       form(32, 64, 16, 8, 4, two_buffers, 4),
          form(32, 32, 32, 4, 4, loop, 2),           form(32, 32, 16, 4, 4, loop, 1),
          form(32, 32, 32, 4, 4, unrolled, 4)};
}

std::vector<MatmulForm> matrix_forms() {
  return {matrices(128, 128, 64, 64), matrices(128, 64, 64, 32), matrices(64, 64, 32, 32), matrices(32, 64, 16, 32)};
}

std::int64_t bytes_of_vectors(const Target& target, const MatmulForm& form, std::int64_t rows, int products,
                              int row_totals) {
  const int size = target.subgroup_size;
  const int parts = size > 1 && form.lanes % size == 0 ? form.lanes / size : form.lanes;
  return 4 * rows * (form.part_columns * products + row_totals) * form.across() * parts;
}

std::int64_t MatmulForm::workgroup_bytes(int element_bytes) const {
  if (kind == Kind::matrices) {
    constexpr int staged_bytes = 16 * 16 * 4;
    return std::int64_t{2} * (inner + padding) * (rows + columns) + std::int64_t{threads() / 32} * staged_bytes;
  }
  return std::int64_t{element_bytes} * inner * (pitch() + columns) * (two_buffers ? 2 : 1);
}

MatmulForm choose_form(const Target& target, const MatmulProblem& problem) {
  if (target.tuned != nullptr && target.fixed_threads == 0)
    if (const MatmulForm* tuned = target.tuned->form_of(target, problem)) return *tuned;
  const Sizes sizes(problem);
  if (problem.suits_vectors) return choose_vectors(target, sizes, problem);
  if (sizes.rows <= 4 || sizes.columns <= 4) return {.kind = Kind::dots};
  if (problem.suits_matrices)
    if (const std::optional<MatmulForm> form = choose_matrices(target, sizes)) return *form;
  if (target.software) return {.kind = Kind::blocks};
  return choose_tiles(target, sizes, problem);
}

void write_matmul_as(KernelWriter& writer, const MatmulForm& form) {
  const MatmulProblem problem(writer);
  switch (form.kind) {
    case Kind::dots: return write_dots(writer, problem);
    case Kind::vectors: return write_vectors(writer, problem, form);
    case Kind::blocks: return write_blocks(writer, problem);
    case Kind::tiles: return write_tiles(writer, problem, form);
    case Kind::matrices: return write_matrices(writer, problem, form);
  }
}

void write_matmul(KernelWriter& writer) {
  const MatmulProblem problem(writer);
  if (const std::optional<QuantisedForm> form = choose_quantised(writer, problem))
    return write_quantised(writer, problem, *form);
  if (writer.target().software && suits_quantised_blocks(writer, problem))
    return write_quantised_blocks(writer, problem);
  write_matmul_as(writer, choose_form(writer.target(), problem));
}

}  // namespace jerboa::wgsl
