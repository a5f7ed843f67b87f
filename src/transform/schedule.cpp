#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include <jerboa/ops/ops.h>
#include <jerboa/transform/schedule.h>

namespace jerboa {

void check_rate(double rate, bool may_be_negative) {
  if (!std::isfinite(rate) || (rate < 0 && !may_be_negative))
    throw UsageError(
        fmt::format("a learning rate must be {}finite, not {}", may_be_negative ? "" : "0 or more and ", rate));
}

Schedule::Schedule(double constant) : Schedule(std::vector<Piece>{{0, constant, constant, Curve::linear}}) {}

Schedule::Schedule(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
  if (pieces_.empty()) throw UsageError("a schedule needs at least one piece");
  for (const Piece& piece : pieces_) {
    if (piece.steps < 0) throw UsageError(fmt::format("a piece of a schedule cannot have {} steps", piece.steps));
    check_rate(piece.from);
    check_rate(piece.to);
  }
}

double Schedule::at(std::int64_t step) const {
  for (const Piece& piece : pieces_) {
    if (step <= piece.steps) {
      const double t = static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(piece.steps, 1));
      const double bent = piece.curve == Curve::linear ? t : 0.5 - 0.5 * std::cos(std::numbers::pi * t);
      return piece.from + (piece.to - piece.from) * bent;
    }
    step -= piece.steps;
  }
  return pieces_.back().to;
}

Tensor Schedule::at(Operand step) const {
  const SiteScope scope(step.site());
  Tensor value = scalar(pieces_.back().to);
  std::int64_t start = 0;
  for (const Piece& piece : pieces_) start += piece.steps;
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const std::int64_t end = start;
    start -= piece->steps;
    if (piece->steps == 0) continue;
    const Tensor t = cast(step.tensor() - start, DType::f32) / static_cast<double>(piece->steps);
    const Tensor bent = piece->curve == Curve::linear ? t : 0.5 - 0.5 * cos(std::numbers::pi * t);
    const Tensor here = piece->from + (piece->to - piece->from) * bent;
    value = where(step.tensor() <= end, here, value);
  }
  return value;
}

namespace {

Schedule warmup_then(double peak, std::int64_t warmup, std::int64_t total, double floor, Schedule::Curve curve) {
  if (warmup < 0 || total < warmup)
    throw UsageError(fmt::format("a schedule of {} steps cannot begin with {} of warm-up", total, warmup));
  return Schedule({{warmup, 0, peak, Schedule::Curve::linear}, {total - warmup, peak, floor, curve}});
}

}  // namespace

Schedule warmup_cosine(double peak, std::int64_t warmup, std::int64_t total, double floor) {
  return warmup_then(peak, warmup, total, floor, Schedule::Curve::cosine);
}

Schedule warmup_linear(double peak, std::int64_t warmup, std::int64_t total, double floor) {
  return warmup_then(peak, warmup, total, floor, Schedule::Curve::linear);
}

}  // namespace jerboa
