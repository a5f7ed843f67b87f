#include "c_api/optimizer_options.h"

#include <jerboa/base/error.h>

namespace jerboa::c_api {
namespace {

constexpr std::int64_t max_steps = std::int64_t{1} << 31;

LearningRate rate_of(const nlohmann::json& json, double otherwise) {
  if (json.is_null()) return Schedule(otherwise);
  if (json.is_number()) return Schedule(json.get<double>());
  Fields fields(json, "optimizer: lr");
  if (fields.has("input")) {
    HostRate rate{fields.text("input", "lr")};
    fields.finish();
    return rate;
  }
  const bool cosine = fields.choice("schedule", {"warmup_cosine", "warmup_linear"}, 0) == 0;
  const double peak = fields.number("peak", otherwise), floor = fields.number("floor", 0);
  const std::int64_t warmup = fields.integer("warmup", 0, 0, max_steps);
  const std::int64_t total = fields.integer("total", 1, 1, max_steps);
  fields.finish();
  return cosine ? warmup_cosine(peak, warmup, total, floor) : warmup_linear(peak, warmup, total, floor);
}

// Shared by Adam and AdamW.
template <class Kind>
void read_moments(Kind& adam, Fields& fields) {
  adam.lr = rate_of(fields.value("lr"), 1e-3);
  adam.beta1 = fields.number("beta1", adam.beta1);
  adam.beta2 = fields.number("beta2", adam.beta2);
  adam.eps = fields.number("eps", adam.eps);
  adam.clip_norm = fields.number("clip_norm", 0);
}

Sgd sgd_of(Fields& fields) {
  Sgd sgd;
  sgd.lr = rate_of(fields.value("lr"), 1e-2);
  sgd.momentum = fields.number("momentum", 0);
  sgd.nesterov = fields.flag("nesterov", false);
  sgd.weight_decay = fields.number("weight_decay", 0);
  sgd.clip_norm = fields.number("clip_norm", 0);
  return sgd;
}

Optimizer read_kind(Fields& fields) {
  const std::size_t kind = fields.choice("kind", {"adamw", "adam", "sgd"}, 0);
  if (kind == 2) return sgd_of(fields);
  if (kind == 1) {
    Adam adam;
    read_moments(adam, fields);
    return adam;
  }
  AdamW adamw;
  read_moments(adamw, fields);
  adamw.weight_decay = fields.number("weight_decay", adamw.weight_decay);
  return adamw;
}

}  // namespace

Optimizer optimizer_of(const nlohmann::json& json) {
  Fields fields(json, "optimizer");
  Optimizer optimizer = read_kind(fields);
  fields.finish();
  return optimizer;
}

}  // namespace jerboa::c_api
