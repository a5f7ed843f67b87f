// A character GPT: trains on a text file and writes in its manner.
//   gpt TEXT [STEPS]
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include <jerboa/jerboa.h>

using namespace jerboa;

struct Block {
  int width = 0, heads = 1;
  nn::LayerNorm ln1{width}, ln2{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 4 * width}, down{4 * width, width};
  JERBOA_FIELDS(ln1, ln2, qkv, proj, up, down)

  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(ln1(x)));
    x = x + proj(attention(q, k, v, {.heads = heads, .causal = true, .capture = "attention"}));
    return x + down(gelu(up(ln2(x))));
  }
};

struct Gpt {
  int vocab = 256, width = 64, layers = 2, heads = 4, context = 64;
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

void run(const char* file, int steps) {
  Trainer gpt(Gpt{}, next_token_loss,
              {.optimizer = AdamW{.lr = warmup_cosine(3e-3, steps / 10, steps), .weight_decay = 0.1}});
  TextData text(file, {.batch = 8, .length = 64});
  for (auto& batch : text.batches(steps))
    if (auto r = gpt.step(batch); r.step % 10 == 0) std::cout << r.step << ' ' << r.loss() << std::endl;

  // One character at a time, each the likeliest after the last 64.
  auto forward = gpt.compile_forward();
  std::string written = "Shall I compare thee to a summer's day?\nThou art more lovely and";
  for (int i = 0; i < 120; ++i) {
    HostTensor ids(DType::i32, {1, 64});
    std::transform(written.end() - 64, written.end(), ids.as<std::int32_t>().begin(),
                   [](unsigned char c) { return c; });
    const HostTensor logits = forward({{"ids", ids}}).get("output");
    const auto last = logits.f32().last(256);
    written += static_cast<char>(std::max_element(last.begin(), last.end()) - last.begin());
  }
  std::cout << written << '\n';
}

int main(int argc, char** argv) {
  const int steps = argc > 2 ? std::atoi(argv[2]) : 100;
  if (argc < 2 || steps < 1) {
    std::cerr << "usage: gpt TEXT [STEPS]\n";
    return 2;
  }
  try {
    run(argv[1], steps);
  } catch (const Error& error) {
    std::cerr << "gpt: " << error.what() << '\n';
    return 1;
  }
}
