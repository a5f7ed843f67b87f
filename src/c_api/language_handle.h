#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/c_api/jerboa_c.h>
#include <jerboa/lower/program.h>
#include <jerboa/models/family.h>
#include <jerboa/serving/scheduler.h>

#include "c_api/bundle.h"
#include "c_api/checkpoint.h"
#include "c_api/fields.h"
#include "c_api/text_files.h"
#include "steps/generation_config.h"
#include "steps/model_plan.h"

namespace jerboa::c_api {

/// The parts of a language model.
struct LanguageParts {
  models::Config config;
  Checkpoint checkpoint;
  Target target;
  language::PlanOptions options;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  detail::GenerationConfig generation;
};

/// Parses the bundle that jerboa_language_create takes. Throws an error that says what is missing or wrong.
LanguageParts read_language(const Bundle& request);

}  // namespace jerboa::c_api

/// A language model without its device: makes all decisions, but computes nothing.
struct jerboa_language {
 public:
  explicit jerboa_language(jerboa::c_api::LanguageParts parts);

  nlohmann::json describe() const;
  std::string program(const std::string& entry) const;
  /// A parameter, or some of its rows, made from the tensors that describe() lists for it.
  std::string parameter(const jerboa::c_api::Bundle& request) const;

  nlohmann::json submit(jerboa::c_api::Fields request, double now);
  /// The next step as a bundle; empty if there is none.
  std::string next(double now);
  /// `results` are the outputs of a run, by name.
  nlohmann::json complete(std::int64_t number, const jerboa::c_api::Bundle& results, double now);
  nlohmann::json fail(std::int64_t number, const std::string& error, bool out_of_memory, double now);
  nlohmann::json cancel(std::int64_t id, double now);

  const jerboa::Tokenizer& tokenizer() const { return parts_.tokenizer; }
  std::vector<std::int32_t> prompt_of(jerboa::c_api::Fields& request) const;

 private:
  std::shared_ptr<const jerboa::Vocabulary> vocabulary() const;
  const jerboa::serving::Step& oldest(std::int64_t number) const;
  void remember(const jerboa::language::Entry& entry) { entries_.emplace(entry.name, entry.graph); }

  jerboa::c_api::LanguageParts parts_;
  jerboa::language::ModelPlan plan_;
  jerboa::serving::Scheduler scheduler_;
  std::map<std::string, std::function<jerboa::Graph()>> entries_;  // that a host may have to compile
  std::deque<jerboa::serving::Step> in_flight_;
  mutable std::shared_ptr<const jerboa::Vocabulary> vocabulary_;
};
