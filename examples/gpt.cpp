// A character GPT: trains on a text file, then writes in its manner.
//   gpt TEXT [STEPS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <jerboa/jerboa.h>

using namespace jerboa;

struct Block {
  int width = 0, heads = 1;
  nn::LayerNorm ln1{width}, ln2{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 4 * width}, down{4 * width, width};
  JERBOA_FIELDS(ln1, ln2, qkv, proj, up, down)  // parameter names come from the fields: "blocks.0.qkv.weight"

  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(ln1(x)));
    x = x + proj(attention(q, k, v, {.heads = heads, .causal = true}));
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

// Writes on, one character at a time, from the last `context` of them.
std::string write(ForwardPass& forward, std::string text, std::size_t context, int characters) {
  Sampler sampler({.temperature = 0.8f, .top_k = 40, .seed = 1});
  for (int i = 0; i < characters; ++i) {
    const std::size_t length = std::min(text.size(), context);
    HostTensor ids(DType::i32, {1, static_cast<std::int64_t>(context)});
    for (std::size_t t = 0; t < length; ++t)
      ids.as<std::int32_t>()[t] = static_cast<unsigned char>(text[text.size() - length + t]);
    HostTensor logits = forward({{"ids", ids}}).get("output");
    text += static_cast<char>(sampler.sample(logits.f32().subspan((length - 1) * 256, 256)));
  }
  return text;
}

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: gpt TEXT [STEPS]\n";
    return 2;
  }
  const int steps = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1000;
  const Gpt model;
  Trainer gpt(model, next_token_loss,
              {.optimizer =
                   AdamW{.lr = warmup_cosine(2e-3, std::min(100, steps), steps), .weight_decay = 0.1, .clip_norm = 1}});
  const TextData text(argv[1], {.batch = 16, .length = model.context});
  std::printf("%lld parameters, %zu characters of text, device %s\n", static_cast<long long>(count_parameters(model)),
              text.size(), gpt.session().device().name().c_str());

  const auto start = std::chrono::steady_clock::now();
  for (auto& batch : text.batches(steps)) {
    const auto r = gpt.step(batch);
    if (r.step % 10 != 0 && r.step != steps) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("\rstep %lld of %d  loss %.3f  %.0f characters a second  ", static_cast<long long>(r.step), steps,
                r.loss(), static_cast<double>(r.step) * 16 * model.context / seconds);
    std::fflush(stdout);
  }
  auto forward = gpt.compile_forward();
  std::cout << "\n\n" << write(forward, "Shall I compare", static_cast<std::size_t>(model.context), 600) << "\n";
} catch (const Error& error) {
  std::cerr << "gpt: " << error.what() << '\n';
  return 1;
}
