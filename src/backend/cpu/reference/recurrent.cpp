#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Ops that carry a state from token to token, one token at a time.
namespace jerboa::reference {
namespace {

// Which tokens of a batch are not padding, and which row of the state belongs to each sequence.
struct Tokens {
  const Value *state, *positions, *slots;
  std::int64_t time;

  double position(std::int64_t b, std::int64_t t) const {
    return positions != nullptr ? positions->data[b * time + t] : static_cast<double>(t + 1);
  }
  bool is_real(std::int64_t b, std::int64_t t) const { return position(b, t) >= 0; }
  bool starts_from_zeros(std::int64_t b) const {
    for (std::int64_t t = 0; t < time; ++t)
      if (is_real(b, t)) return position(b, t) == 0;
    return false;
  }
  // The row of the state; -1 if there is none.
  std::int64_t row(std::int64_t b) const {
    if (slots == nullptr) return b;
    const auto slot = static_cast<std::int64_t>(slots->data[b]);
    return 0 <= slot && slot < state->shape[0] ? slot : -1;
  }
  // `count` elements of a sequence's state, from `offset` in its row of `width`.
  std::vector<double> initial(std::int64_t b, std::int64_t width, std::int64_t offset, std::int64_t count) const {
    std::vector<double> values(count, 0);
    if (state != nullptr && row(b) >= 0 && !starts_from_zeros(b))
      std::copy_n(state->data.begin() + row(b) * width + offset, count, values.begin());
    return values;
  }
};

Tokens tokens_of(const Call& call, std::size_t positions, std::int64_t time) {
  const auto optional = [&](std::size_t i) { return i < call.inputs.size() ? call.inputs[i] : nullptr; };
  return {optional(0), optional(positions), optional(positions + 1), time};
}

}  // namespace

template <>
void evaluate<Op::causal_conv1d>(const Call& call) {
  const Value &x = call.in(1), &weight = call.in(2);
  const std::int64_t batch = x.shape[0], time = x.shape[1], channels = x.shape[2], taps = weight.shape[1];
  const Tokens tokens = tokens_of(call, 3, time);
  Value &next = call.out(0), &y = call.out(1);
  if (tokens.slots != nullptr) next.data = tokens.state->data;
  const std::int64_t width = (taps - 1) * channels;
  for (std::int64_t b = 0; b < batch; ++b) {
    // All inputs so far, oldest first: those of the state, then the tokens.
    std::vector<double> inputs = tokens.initial(b, width, 0, width);
    for (std::int64_t t = 0; t < time; ++t) {
      if (!tokens.is_real(b, t)) continue;
      const auto from = x.data.begin() + (b * time + t) * channels;
      inputs.insert(inputs.end(), from, from + channels);
      const double* seen = inputs.data() + static_cast<std::int64_t>(inputs.size()) - taps * channels;
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t tap = 0; tap < taps; ++tap)
          y.data[(b * time + t) * channels + c] += weight.data[c * taps + tap] * seen[tap * channels + c];
    }
    if (tokens.row(b) >= 0) std::copy_n(inputs.end() - width, width, next.data.begin() + tokens.row(b) * width);
  }
}

namespace {

// The operands of linear_attention by name, and where their elements are.
struct LinearAttention {
  const Value &q, &k, &v, &log_decay;
  const Value* beta;
  Tokens tokens;
  std::int64_t batch = v.shape[0], time = v.shape[1], heads = v.shape[2], groups = k.shape[2];
  std::int64_t key_size = k.shape[3], value_size = v.shape[3], state_size = key_size * value_size;

  std::int64_t key_at(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * time + t) * groups + h / (heads / groups)) * key_size;
  }
  std::int64_t gate_at(std::int64_t b, std::int64_t t, std::int64_t h) const { return (b * time + t) * heads + h; }
  std::int64_t value_at(std::int64_t b, std::int64_t t, std::int64_t h) const { return gate_at(b, t, h) * value_size; }
  double decay(std::int64_t gate) const { return std::exp(log_decay.data[gate]); }

  std::vector<double> initial(std::int64_t b, std::int64_t h) const {
    return tokens.initial(b, heads * state_size, h * state_size, state_size);
  }
  // row · S for a row of q or k.
  double read(const std::vector<double>& row, std::int64_t at, const std::vector<double>& s, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t i = 0; i < key_size; ++i) sum += row[at + i] * s[i * value_size + j];
    return sum;
  }
  // The value that the token adds to the decayed state: v, or beta (v - k P).
  std::vector<double> written(std::int64_t b, std::int64_t t, std::int64_t h,
                              const std::vector<double>& decayed) const {
    std::vector<double> u(v.data.begin() + value_at(b, t, h), v.data.begin() + value_at(b, t, h) + value_size);
    if (beta == nullptr) return u;
    for (std::int64_t j = 0; j < value_size; ++j)
      u[j] = beta->data[gate_at(b, t, h)] * (u[j] - read(k.data, key_at(b, t, h), decayed, j));
    return u;
  }
  // The state after a token, from the one before it.
  std::vector<double> after(std::int64_t b, std::int64_t t, std::int64_t h, std::vector<double> s) const {
    for (double& element : s) element *= decay(gate_at(b, t, h));
    const std::vector<double> u = written(b, t, h, s);
    for (std::int64_t i = 0; i < key_size; ++i)
      for (std::int64_t j = 0; j < value_size; ++j) s[i * value_size + j] += k.data[key_at(b, t, h) + i] * u[j];
    return s;
  }
};

LinearAttention linear_attention(const Call& call, const Value* slots) {
  const Value *beta = call.inputs[5], *positions = call.inputs[6];
  return {call.in(1), call.in(2), call.in(3),
          call.in(4), beta,       {call.inputs[0], positions, slots, call.in(3).shape[1]}};
}

}  // namespace

template <>
void evaluate<Op::linear_attention>(const Call& call) {
  const LinearAttention a = linear_attention(call, call.inputs[7]);
  Value &next = call.out(0), &y = call.out(1);
  if (a.tokens.slots != nullptr) next.data = a.tokens.state->data;
  for_each_index({a.batch, a.heads}, [&](const Sizes& index) {
    const std::int64_t b = index[0], h = index[1];
    std::vector<double> s = a.initial(b, h);
    for (std::int64_t t = 0; t < a.time; ++t) {
      if (!a.tokens.is_real(b, t)) continue;
      s = a.after(b, t, h, std::move(s));
      for (std::int64_t j = 0; j < a.value_size; ++j)
        y.data[a.value_at(b, t, h) + j] = a.read(a.q.data, a.key_at(b, t, h), s, j);
    }
    const std::int64_t row = a.tokens.row(b);
    if (row >= 0) std::copy(s.begin(), s.end(), next.data.begin() + (row * a.heads + h) * a.state_size);
  });
}

template <>
void evaluate<Op::linear_attention_grad>(const Call& call) {
  const LinearAttention a = linear_attention(call, nullptr);
  const std::vector<double>& dy = call.in(8).data;
  std::vector<double>&dq = call.out(0).data, &dk = call.out(1).data, &dv = call.out(2).data,
  &dlog_decay = call.out(3).data;
  double* dbeta = a.beta != nullptr ? call.out(4).data.data() : nullptr;
  double* dstate = call.has(0) ? call.outputs.back().data.data() : nullptr;
  for_each_index({a.batch, a.heads}, [&](const Sizes& index) {
    const std::int64_t b = index[0], h = index[1];
    std::vector<std::vector<double>> states{a.initial(b, h)};  // before each token, and after the last
    for (std::int64_t t = 0; t < a.time; ++t)
      states.push_back(a.tokens.is_real(b, t) ? a.after(b, t, h, states.back()) : states.back());
    std::vector<double> ds(a.state_size, 0);
    if (call.has(7)) std::copy_n(call.in(7).data.begin() + (b * a.heads + h) * a.state_size, a.state_size, ds.begin());
    for (std::int64_t t = a.time - 1; t >= 0; --t) {
      if (!a.tokens.is_real(b, t)) continue;
      const std::int64_t key = a.key_at(b, t, h), value = a.value_at(b, t, h), gate = a.gate_at(b, t, h);
      std::vector<double> decayed = states[t];
      for (double& element : decayed) element *= a.decay(gate);
      const std::vector<double> u = a.written(b, t, h, decayed);
      for (std::int64_t j = 0; j < a.value_size; ++j)
        for (std::int64_t i = 0; i < a.key_size; ++i) {
          dq[key + i] += states[t + 1][i * a.value_size + j] * dy[value + j];
          ds[i * a.value_size + j] += a.q.data[key + i] * dy[value + j];
        }
      for (std::int64_t j = 0; j < a.value_size; ++j) {
        const double du = a.read(a.k.data, key, ds, j);
        const double dr = a.beta != nullptr ? a.beta->data[gate] * du : du;  // of v - k P
        dv[value + j] = dr;
        for (std::int64_t i = 0; i < a.key_size; ++i) dk[key + i] += ds[i * a.value_size + j] * u[j];
        if (a.beta == nullptr) continue;
        dbeta[gate] += du * (a.v.data[value + j] - a.read(a.k.data, key, decayed, j));
        for (std::int64_t i = 0; i < a.key_size; ++i) {
          dk[key + i] -= decayed[i * a.value_size + j] * dr;
          ds[i * a.value_size + j] -= a.k.data[key + i] * dr;
        }
      }
      for (std::int64_t e = 0; e < a.state_size; ++e) {
        dlog_decay[gate] += ds[e] * decayed[e];
        ds[e] *= a.decay(gate);
      }
    }
    if (dstate != nullptr && !a.tokens.starts_from_zeros(b))
      std::copy(ds.begin(), ds.end(), dstate + (b * a.heads + h) * a.state_size);
  });
}

}  // namespace jerboa::reference
