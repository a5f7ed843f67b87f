#include "ops/cases/large.h"

namespace jerboa::test {
namespace {

constexpr std::int64_t long_line = 1031;

// The op's first case in another shape: operands of several axes get it, those of one its last axis.
Case in_shape(const Case& first, const Shape& shape) {
  Case sample = first;
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    Draw& operand = sample.operands[i];
    if (operand.kind == Draw::Kind::absent) continue;
    operand.shape = operand.shape.size() > 1 || i == 0 ? shape : Shape{shape.back()};
  }
  return sample;
}

std::vector<Case> reductions(Op op) {
  std::vector<Case> cases;
  const Draw values = op == Op::max || op == Op::min ? distinct({129, 67}) : any({129, 67});
  for (const std::vector<int>& axes : {std::vector<int>{0}, {1}, {0, 1}})
    cases.push_back({{values}, ReduceAttrs{axes, false}});
  Draw line = values;
  line.shape = {3, long_line};
  cases.push_back({{line}, ReduceAttrs{{1}, true}});
  return cases;
}

std::vector<Case> products() {
  return {{{any({130, 70}), any({70, 129})}, MatmulAttrs{}},
          {{any({130, 70}), any({129, 70})}, MatmulAttrs{false, true}},
          {{any({70, 130}), any({70, 129})}, MatmulAttrs{true, false}},
          {{any({2, 130, 70}), any({70, 129})}, MatmulAttrs{}},
          {{any({3, 66, 70}), any({3, 70, 35})}, MatmulAttrs{}}};
}

// Several chunks, wider than a tile. Keys are short, as models make them.
std::vector<Case> linear_attentions() {
  std::vector<Case> cases;
  for (const bool with_beta : {false, true}) {
    const Shape gates{2, 75, 4};
    const Draw beta = with_beta ? within(0.1, 0.9, gates) : absent();
    cases.push_back({{any({2, 4, 67, 36}), any({2, 75, 2, 67}), within(-0.2, 0.2, {2, 75, 2, 67}), any({2, 75, 4, 36}),
                      within(-0.3, -0.01, gates), beta, absent(), absent()}});
  }
  return cases;
}

}  // namespace

std::vector<Case> large_cases_of(Op op) {
  switch (op) {
    case Op::sum:
    case Op::mean:
    case Op::max:
    case Op::min: return reductions(op);
    case Op::argmax:
      return {{{distinct({129, 67})}, ArgmaxAttrs{0, false}}, {{distinct({3, long_line})}, ArgmaxAttrs{}}};
    case Op::all_finite: return {{{any({129, 67})}}};
    case Op::matmul: return products();
    case Op::softmax:
    case Op::log_softmax: return {{{any({5, long_line})}, AxisAttrs{-1}}, {{any({long_line, 5})}, AxisAttrs{0}}};
    case Op::causal_softmax: return {{{any({2, 131, 131})}}};
    case Op::layer_norm: return {{{any({5, 515}), any({515}), any({515})}, EpsAttrs{1e-5}}};
    case Op::rms_norm: return {{{any({5, 515}), any({515})}, EpsAttrs{1e-6}}};
    case Op::cross_entropy:
      return {{{any({5, long_line}), whole(0, long_line - 1, {5}), absent()}, CrossEntropyAttrs{}}};
    case Op::matmul_quantised:
      return {{{any({17, 416}), whole(-9, 9, {130, 416}, DType::i8), within(0.01, 0.02, {130, 13})}},
              {{any({1, 1056}), whole(-8, 7, {300, 1056}, DType::i4), within(0.01, 0.02, {300, 33})}}};
    case Op::dequantise: return {{{whole(-8, 7, {65, 160}, DType::i4), within(0.01, 0.02, {65, 5})}}};
    case Op::sum_squares: return {{{any({129, 67}), any({9001}), any({3})}}};
    case Op::cumsum:
      return {{{any({3, long_line})}, CumsumAttrs{1, false}}, {{any({long_line, 3})}, CumsumAttrs{0, true}}};
    case Op::cummax: return {{{distinct({3, long_line})}, CumsumAttrs{1, true}}};
    case Op::causal_conv1d: return {{{any({2, 3, 67}), any({2, 129, 67}), any({67, 4}), absent(), absent()}}};
    case Op::linear_attention: return linear_attentions();
    case Op::top_k: return {{{distinct({3, long_line})}, TopKAttrs{17, -1}}};
    case Op::argsort: return {{{distinct({3, long_line})}, ArgsortAttrs{}}};
    case Op::embedding: return {{{any({257, 131}), whole(0, 256, {130})}}};
    case Op::embedding_grad: return {{{whole(0, 256, {130}), any({130, 131})}, EmbeddingGradAttrs{257}}};
    case Op::transpose: return {{{any({129, 67})}, TransposeAttrs{{1, 0}}}};
    case Op::adam_update:
    case Op::sgd_update:
    case Op::arange:
    case Op::random:
    case Op::concat:
    case Op::pad:
    case Op::take_along_axis:
    case Op::one_hot: return {};
    default: break;
  }
  if (info(op).lowering != Lowering::Loop) return {};
  return {in_shape(cases_of(op).front(), {129, 67})};
}

}  // namespace jerboa::test
