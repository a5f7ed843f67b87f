#pragma once

#include <jerboa/jerboa.h>

// A character GPT, and its export to a folder from which a web page trains and runs it (docs/web.md).

using namespace jerboa;

struct Block {
  int width = 0, heads = 1;
  bool shows_attention = false;  // captures what each token attends to
  nn::LayerNorm ln1{width}, ln2{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 4 * width}, down{4 * width, width};
  JERBOA_FIELDS(ln1, ln2, qkv, proj, up, down)  // parameter names come from the fields: "blocks.0.qkv.weight"

  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(ln1(x)));
    const std::string capture = shows_attention ? "attention" : "";
    x = x + proj(attention(q, k, v, {.heads = heads, .causal = true, .capture = capture}));
    return x + down(gelu(up(ln2(x))));
  }
};

struct Gpt {
  int vocab = 256, width = 128, layers = 4, heads = 4, context = 64;
  nn::Embedding tok{vocab, width}, pos{context, width};
  std::vector<Block> blocks = nn::stack<Block>(layers, {.width = width, .heads = heads});
  nn::LayerNorm norm{width};
  JERBOA_FIELDS(tok, pos, blocks, norm)

  Tensor operator()(Tensor ids) const {
    Tensor x = tok(ids) + pos(arange(ids.dim(-1)));
    for (const auto& block : blocks) x = block(x);
    return tok.logits(norm(x));  // tied
  }
};

/// The schedule decays to `floor`, at which training beyond `steps` continues.
inline Optimizer gpt_optimizer(int steps, double floor = 0) {
  return AdamW{.lr = warmup_cosine(2e-3, std::min(100, steps), steps, floor), .weight_decay = 0.1, .clip_norm = 1};
}

/// The graphs for a page: "step" trains on a batch, "forward" computes the logits of a whole context, and "decode" the
/// logits after a text of any length up to the context, with its attention as a capture.
inline std::vector<std::pair<std::string, Graph>> gpt_graphs(Gpt model, int batch, int steps) {
  assign_paths(model);
  const Dim context = model.context, length = Dim::symbol("T", model.context);
  const InputSpecs step{{"ids", {batch, context}, DType::i32}, {"targets", {batch, context}, DType::i32}};
  const auto forward = [&](const Inputs& in) { return model(in["ids"]); };
  Gpt watched = model;
  for (Block& block : watched.blocks) block.shows_attention = true;
  const auto decode = [&](const Inputs& in) {
    return reshape(slice(watched(in["ids"]), 1, length - 1, length), {model.vocab});
  };
  const auto loss = [&](const Inputs& in) { return next_token_loss(model, in); };
  // A page trains until the visitor stops it.
  return {{"step", training_graph(step, loss, gpt_optimizer(steps, 2e-4))},
          {"forward", forward_graph({{"ids", {1, context}, DType::i32}}, forward)},
          {"decode", forward_graph({{"ids", {1, length}, DType::i32}}, decode)}};
}

/// Graphs by name, as JSON.
inline std::string graphs_json(const std::vector<std::pair<std::string, Graph>>& graphs) {
  std::string json;
  for (const auto& [name, graph] : graphs) json += (json.empty() ? "{\"" : ",\n\"") + name + "\": " + to_json(graph);
  return json + "}\n";
}

/// Writes the graphs, which a page compiles for its device, a program, initial parameters, text and a manifest that
/// names them. The program is compiled for `target`, by default any WebGPU device. No device is needed here.
inline void export_gpt(const std::filesystem::path& folder, const Gpt& model, std::string_view text, int batch,
                       int steps, const Target& target = Target::webgpu_default()) {
  const auto graphs = gpt_graphs(model, batch, steps);
  const ProgramFile program = compile_program(graphs, target);
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "graphs.json", graphs_json(graphs));
  save_program(folder / "gpt.jerboa", program);
  save_initial_params(folder / "parameters.safetensors", program);
  write_file_atomically(folder / "text.txt", text);
  const std::string manifest = R"({
  "name": "A character GPT",
  "graphs": "graphs.json",
  "program": "gpt.jerboa",
  "parameters": "parameters.safetensors",
  "text": "text.txt",
  "vocabulary": "bytes",
  "steps": )" + std::to_string(steps) +
                               "\n}\n";
  write_file_atomically(folder / "manifest.json", manifest);
}
