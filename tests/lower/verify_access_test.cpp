#include "lower/verify_access.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "support/expect_error.h"

// Accesses that leave their buffers, and kernels that are not well formed, are refused one by one.
namespace jerboa {
namespace {

class BrokenAccess : public testing::Test {
 protected:
  void compile(const std::function<void()>& body) { program = lower(trace(body), Target::cpu()); }
  KernelSpec& kernel(std::size_t number = 0) { return program.cpu.kernels.at(number); }
  KernelSpec& kernel_of(KernelSpec::Kind kind) {
    return *std::find_if(program.cpu.kernels.begin(), program.cpu.kernels.end(),
                         [&](const KernelSpec& kernel) { return kernel.kind == kind; });
  }
  Instruction& instruction_of(KernelSpec& kernel, Instruction::Kind kind) {
    return *std::find_if(kernel.body.begin(), kernel.body.end(),
                         [&](const Instruction& one) { return one.kind == kind; });
  }
  // Expects that the program is refused after the change, and accepted before it and after undoing it.
  template <class Change>
  void refuse(Change change, const std::string& text) {
    const Program whole = program;
    verify(program, Target::cpu());
    change();
    test::expect_error<Error>([&] { verify(program, Target::cpu()); }, text);
    program = whole;
  }

  Program program;
};

TEST_F(BrokenAccess, LoadsAndStoresOutsideTheirBuffers) {
  compile([] { output("y", exp(tensor_input("x", {4, 5}))); });
  refuse([&] { kernel().loads[0].map.offset = 1; }, "reaches 84 bytes into x, which has 80");
  refuse([&] { kernel().loads[0].map.offset = -1; }, "1 elements before its start");
  refuse([&] { kernel().loads[0].map.strides = {5, 2}; }, "bytes into x, which has 80");
  refuse([&] { kernel().loads[0].map.strides = {-5, 1}; }, "15 elements before its start");
  refuse([&] { kernel().loads[0].map.strides.pop_back(); }, "1 strides for 2 axes");
  refuse([&] { kernel().loads[0].map.strides[0] = std::numeric_limits<std::int64_t>::max(); }, "too large");
  refuse([&] { kernel().loads[0].map.strides[0] = std::int64_t{1} << 47; }, "too large");
  refuse([&] { kernel().loads[0].map.offset = std::numeric_limits<std::int64_t>::min(); }, "too large");
  refuse([&] { kernel().loads[0].binding = 2; }, "there is no binding 2");
  refuse([&] { kernel().loads[0].dtype = DType::i4; }, "only for weights");
  refuse([&] { kernel().stores[0].map.offset = 1; }, "which has 80");
  refuse([&] { kernel().stores[0].binding = -1; }, "there is no binding -1");
  refuse([&] { kernel().domain[0] = 5; }, "which has 80");
  refuse([&] { kernel().domain[0] = -1; }, "a size of -1");
  refuse([&] { kernel().domain = {std::int64_t{1} << 40, std::int64_t{1} << 40}; }, "too large");
  refuse([&] { kernel().bindings = 1 << 30; }, "binds 2 buffers");
  // Reversed within its buffer is valid.
  kernel().loads[0].map = {19, {-5, -1}};
  verify(program, Target::cpu());
}

TEST_F(BrokenAccess, MasksHoldLoadsInsideTheirBuffers) {
  compile([] { output("y", pad(tensor_input("x", {4}), {2}, {3})); });
  Load& load = kernel().loads[0];
  ASSERT_EQ(load.masks.size(), 1u);
  refuse([&] { kernel().loads[0].masks.clear(); }, "2 elements before its start");
  refuse([&] { kernel().loads[0].masks[0].from = 1; }, "1 elements before its start");
  refuse([&] { kernel().loads[0].masks[0].to = 7; }, "reaches 20 bytes into x, which has 16");
  refuse([&] { kernel().loads[0].masks[0].axis = 1; }, "a mask along axis 1");
  refuse([&] { kernel().loads[0].masks[0].axis = -1; }, "a mask along axis -1");
}

TEST_F(BrokenAccess, GathersStayInTheirTables) {
  compile([] { output("y", embedding(tensor_input("table", {7, 3}), tensor_input("ids", {5}, DType::i32))); });
  const auto gather = [&]() -> Load& {
    return *std::find_if(kernel().loads.begin(), kernel().loads.end(),
                         [](const Load& load) { return load.indirect >= 0; });
  };
  refuse([&] { gather().indirect_limit = 8; }, "reaches 96 bytes into table, which has 84");
  refuse([&] { gather().indirect_stride = 4; }, "into table, which has 84");
  refuse([&] { gather().indirect_stride = -1; }, "before its start");
  refuse([&] { gather().indirect = 1000; }, "a gather by instruction 1000");
  refuse([&] { gather().indirect = static_cast<int>(kernel().body.size()) - 1; }, "not an index before it");
  refuse([&] { gather().indirect_limit = std::int64_t{1} << 48, gather().indirect_stride = 1 << 20; }, "too large");
}

TEST_F(BrokenAccess, InstructionsAreDefinedBeforeUseAndFitTheirOps) {
  compile([] {
    const Tensor x = tensor_input("x", {4});
    output("y", x * x + 2);
  });
  const auto compute = [&]() -> Instruction& { return instruction_of(kernel(), Instruction::Kind::compute); };
  refuse([&] { compute().a = 100; }, "which is not before it");
  refuse([&] { compute().b = -2; }, "which is not before it");
  refuse([&] { compute().b = -1; }, "does not have 1 operands");
  refuse([&] { compute().c = 0; }, "does not have 3 operands");
  refuse([&] { compute().op = Op::matmul; }, "matmul, which is not element-wise");
  refuse([&] { compute().op = Op::concat; }, "concat, which is not element-wise");
  refuse([&] { compute().op = Op::where; }, "does not have 2 operands");
  refuse([&] { compute().dtype = DType::i32; }, "has operands of the wrong types");
  refuse([&] { compute().kind = Instruction::Kind::product; }, "a product in a kernel without one");
  refuse([&] { compute().kind = Instruction::Kind::reduce; }, "a reduction");
  refuse([&] { instruction_of(kernel(), Instruction::Kind::load).index = 9; }, "there is no load 9");
  refuse([&] { instruction_of(kernel(), Instruction::Kind::load).dtype = DType::i32; }, "load 0 is of type f32");
  refuse([&] { kernel().stores[0].value = 50; }, "instruction 50 cannot be stored");
  refuse([&] { kernel().stores[0].dtype = DType::i32; }, "is stored as i32");
  refuse(
      [&] {
        Instruction& instruction = instruction_of(kernel(), Instruction::Kind::constant);
        instruction.dtype = DType::i32, instruction.number = 1e300;
      },
      "1e+300 is not a number of type i32");
}

TEST_F(BrokenAccess, ReductionsKnowTheirAxes) {
  compile([] { output("y", sum(tensor_input("x", {6, 4}), {0}) * 2); });
  KernelSpec& kernel = kernel_of(KernelSpec::Kind::reduce);
  ASSERT_EQ(kernel.kind, KernelSpec::Kind::reduce);
  const auto reduce = [&]() -> KernelSpec& { return kernel_of(KernelSpec::Kind::reduce); };
  refuse([&] { reduce().row_axes = 3; }, "cannot be reduced");
  refuse([&] { reduce().row_axes = -1; }, "cannot be reduced");
  refuse([&] { instruction_of(reduce(), Instruction::Kind::reduce).op = Op::cumsum; }, "cumsum is not a reduction");
  refuse([&] { instruction_of(reduce(), Instruction::Kind::reduce).kind = Instruction::Kind::compute; },
         "is not element-wise");
  refuse(
      [&] {
        Instruction position;
        position.kind = Instruction::Kind::position;
        position.dtype = DType::i32;
        position.index = 1;
        reduce().body.push_back(position);
        reduce().stores[0].value = static_cast<int>(reduce().body.size()) - 1;
        reduce().stores[0].dtype = DType::i32;
      },
      "runs along an axis that is reduced");
}

TEST_F(BrokenAccess, ProductsFitTheirOperands) {
  compile([] { output("y", matmul(tensor_input("a", {4, 6}), relu(tensor_input("b", {6, 5})))); });
  const auto product = [&]() -> KernelSpec& { return kernel_of(KernelSpec::Kind::matmul); };
  refuse([&] { product().operands.push_back(product().operands[0]); }, "not a product of two matrices");
  refuse([&] { product().operands[0].shape = {4, 7}; }, "does not give");
  refuse([&] { product().operands[0].offset = 1; }, "into a, which has 96");
  refuse([&] { product().operands[0].binding = -1; }, "there is no binding -1");
  refuse([&] { product().operands[0].dtype = DType::i8; }, "an operand is i8");
  refuse([&] { product().operands[0].strides = {1, 6}; }, "into a, which has 96");
  refuse([&] { product().op = Op::add; }, "not a product");
  refuse([&] { product().domain = {20}; }, "");
  refuse([&] { product().stores[0].map.strides = {1, 4}; }, "not stored in row-major order");
  Instruction load;
  load.kind = Instruction::Kind::load;
  refuse([&] { product().operands[0].prologue = {load}; }, "cannot be part of a prologue");
}

TEST_F(BrokenAccess, WholeOpsHaveTheirOperandsAndAttributes) {
  compile([] { output("y", cumsum(tensor_input("x", {4, 5}), 1)); });
  const auto whole = [&]() -> KernelSpec& { return kernel_of(KernelSpec::Kind::whole); };
  refuse([&] { whole().op = Op::add; }, "add does not work on whole tensors");
  refuse([&] { whole().op = Op::top_k; }, "attributes must be");
  refuse([&] { whole().attrs = CumsumAttrs{7, false}; }, "cumsum");
  refuse([&] { whole().attrs = NoAttrs{}; }, "attributes must be");
  refuse([&] { whole().operands.push_back(whole().operands[0]); }, "takes 1 operands, not 2");
  refuse([&] { whole().operands[0].binding = -1; }, "is missing");
  refuse([&] { whole().operands[0].strides = {6, 1}; }, "into x, which has 80");
  refuse([&] { whole().results[0].shape = {4, 4}; }, "cumsum gives f32[4, 5], not f32[4, 4]");
  refuse([&] { whole().results[0].offset = 1; }, "which has 80");
  refuse([&] { whole().results.push_back(whole().results[0]); }, "gives 1 results, not 2");
  refuse([&] { whole().operands[0].binding = whole().results[0].binding; }, "overwrites an operand");
}

TEST_F(BrokenAccess, ResultsStayInTheirBuffer) {
  compile([] { output("y", exp(tensor_input("x", {4, 5}))); });
  refuse([&] { program.outputs[0].offset = 1; }, "y is read from 84 bytes of");
  refuse([&] { program.outputs[0].shape[0] = 5; }, "y is read from 100 bytes of");
  refuse([&] { program.outputs[0].strides.pop_back(); }, "1 strides for 2 sizes");
  refuse([&] { program.outputs[0].dtype = DType::i8; }, "cannot be read after a run");
  refuse([&] { program.outputs[0].buffer = 77; }, "y has no buffer 77");
  refuse([&] { program.outputs[0].buffer = -1; }, "y has no buffer -1");
}

TEST_F(BrokenAccess, BuffersHoldTheirElements) {
  compile([] { output("y", matmul(tensor_input("x", {4, 4}), constant(HostTensor(DType::f32, {4, 4})))); });
  const auto buffer = [&](Buffer::Where where) -> Buffer& {
    return *std::find_if(program.buffers.begin(), program.buffers.end(),
                         [&](const Buffer& candidate) { return candidate.where == where; });
  };
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  refuse([&] { buffer(Buffer::Where::arena).offset = most / 64 * 64; }, "impossible size or offset");
  refuse([&] { buffer(Buffer::Where::arena).bytes = -64; }, "impossible size or offset");
  refuse([&] { buffer(Buffer::Where::arena).elements = 1000; }, "has 1000 elements in 64 bytes");
  refuse([&] { buffer(Buffer::Where::arena).arena = 3; }, "has no arena 3");
  refuse([&] { program.arenas[0] = most; }, "an arena of");
  refuse([&] { buffer(Buffer::Where::constant).constant = 3; }, "has no constant 3");
  refuse([&] { buffer(Buffer::Where::constant).bytes = 128; }, "does not match its constant");
  refuse([&] { buffer(Buffer::Where::arena).within = 99; }, "is not within any buffer");
  refuse([&] { program.cpu.dispatches[0].parts.clear(); }, "dispatch 0 is empty");
}

// A program is valid at its bounds but not for another value of the symbol: the host detects that.
TEST_F(BrokenAccess, HoldsForTheValuesOfEachRun) {
  compile([] { output("y", exp(tensor_input("x", {Dim::symbol("T", 8), 3}))); });
  for (const std::int64_t t : {1, 5, 8}) detail::verify_access(program, {{"T", t}});
  const Dim t = Dim::symbol("T", 8);
  // One more than there are, but at the ends of the range: T + (T - 1) * (8 - T).
  kernel().domain[0] = t + (t - Dim(1)) * (Dim(8) - t);
  detail::verify_access(program, {{"T", 1}});
  detail::verify_access(program, {{"T", 8}});
  test::expect_error<GraphError>([&] { detail::verify_access(program, {{"T", 4}}); }, "into x, which has 48");
}

// Indices that do not fit

constexpr std::int64_t huge = std::int64_t{1} << 33;

TEST(LargeTensors, AreCountedIn64BitsOrRefusedOnTheCpu) {
  // Nothing here needs an index as a value.
  lower(trace([] { output("y", exp(tensor_input("x", {huge}))); }), Target::cpu());
  test::expect_error<GraphError>(
      [] {
        lower(trace([] { output("y", tensor_input("x", {huge}) + cast(arange(huge), DType::f32)); }), Target::cpu());
      },
      "does not fit i32");
  test::expect_error<GraphError>(
      [] {
        lower(trace([] { output("y", argmax(tensor_input("x", {2, huge}), 1)); }), Target::cpu());
      },
      "does not fit i32");
  test::expect_error<GraphError>(
      [] {
        lower(trace([] { output("y", argsort(tensor_input("x", {2, huge}), 1)); }), Target::cpu());
      },
      "does not fit i32");
}

TEST(LargeTensors, AreRefusedWhereShadersCannotCountThem) {
  Target target = Target::webgpu_default();
  target.max_buffer_bytes = target.max_binding_bytes = std::int64_t{1} << 40;
  const auto emit = [&](const Shape& shape) {
    Program program = lower(trace([&] { output("y", exp(tensor_input("x", shape))); }), target);
    emit_wgsl(program, target);
  };
  emit({65536, 65535 - 16});
  test::expect_error<GraphError>(
      [&] {
        emit({65536, 65536});
      },
      "has 4294967296 elements, but shaders count them in 32 bits");
  test::expect_error<GraphError>([&] { emit({Dim::symbol("T", 65536), 65537}); }, "shaders count them in 32 bits");
  // The weights of a batch are there once.
  Program product = lower(trace([&] {
                            const Tensor x = tensor_input("x", {64, 1, 2048});
                            output("y", matmul(x, param_input("w", {128256, 2048}), {.transpose_b = true}));
                          }),
                          target);
  emit_wgsl(product, target);
  // The result is small, but the domain that is added up is not.
  test::expect_error<GraphError>(
      [&] {
        Program program =
            lower(trace([&] {
                    output("y", sum(broadcast_to(exp(tensor_input("x", {65536, 1})), {65536, 65536}) * 2));
                  }),
                  target);
        emit_wgsl(program, target);
      },
      "shaders count them in 32 bits");
}

}  // namespace
}  // namespace jerboa
