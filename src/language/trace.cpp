#include "language/trace.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/file.h>

namespace jerboa::language {
namespace {

constexpr std::int64_t step_line = 0;

const char* name_of(serving::StepKind kind) {
  switch (kind) {
    case serving::StepKind::prefill: return "prefill";
    case serving::StepKind::decode: return "decode";
    case serving::StepKind::mixed: return "mixed";
  }
  return "";
}

}  // namespace

void Trace::add_step(const serving::Step& step, double start, double end) {
  std::int64_t tokens = 0;
  for (const serving::Row& row : step.plan) tokens += row.count;
  const nlohmann::json details{{"step", step.number},
                               {"rows", step.plan.size()},
                               {"tokens", tokens},
                               {"shape", fmt::format("{} x {}", step.rows, step.time)},
                               {"copies", step.copies.size()}};
  spans_.push_back({name_of(step.kind), "step", details.dump(), step_line, start, end});
}

void Trace::add_text(serving::SequenceId id, const serving::SequenceStatistics& text) {
  const double end = text.finished.value_or(text.arrived), first = text.first_token.value_or(end);
  const nlohmann::json prompt{{"tokens", text.prompt_tokens}, {"reused", text.reused}};
  const nlohmann::json answer{
      {"tokens", text.tokens}, {"drafted", text.drafted}, {"accepted", text.accepted}, {"preempted", text.preemptions}};
  spans_.push_back({"prompt", "text", prompt.dump(), id, text.arrived, first});
  spans_.push_back({"answer", "text", answer.dump(), id, first, end});
}

void Trace::write(const std::filesystem::path& path) const {
  using Json = nlohmann::ordered_json;
  constexpr int process = 1;
  double origin = spans_.empty() ? 0 : spans_.front().start;
  for (const Span& span : spans_) origin = std::min(origin, span.start);
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", "jerboa"}}}});
  events.push_back(
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", step_line}, {"args", {{"name", "steps"}}}});
  for (const Span& span : spans_)
    events.push_back({{"name", span.name},
                      {"cat", span.category},
                      {"ph", "X"},
                      {"ts", (span.start - origin) * 1e6},
                      {"dur", (span.end - span.start) * 1e6},
                      {"pid", process},
                      {"tid", span.line},
                      {"args", Json::parse(span.details)}});
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  write_file_atomically(path, trace.dump());
}

}  // namespace jerboa::language
