#include "cli/torch_peer.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <sys/wait.h>
#include <thread>

#include <jerboa/base/error.h>

namespace jerboa::cli {
namespace {

// The same workloads as in bench.cpp. Sets OPENBLAS_CORETYPE to what this processor supports: Debian's OpenBLAS
// mistakes new processors for old ones, which would make it several times slower and the comparison unfair. PyTorch on
// the CPU is refused if its matrix product shows that it found no fast BLAS at all.
constexpr const char* program = R"(
import os, sys, time
work, form, precision, threads, seconds = *sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5])
with open('/proc/cpuinfo') as file: flags = file.read().split()
if 'avx512f' in flags and 'avx512bw' in flags: os.environ.setdefault('OPENBLAS_CORETYPE', 'SkylakeX')
elif 'avx2' in flags: os.environ.setdefault('OPENBLAS_CORETYPE', 'Haswell')
os.environ.setdefault('OMP_WAIT_POLICY', 'PASSIVE')
os.environ['OMP_NUM_THREADS'] = os.environ['OPENBLAS_NUM_THREADS'] = str(threads)
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.set_num_threads(threads)
torch.manual_seed(0)
device = 'cpu' if form == 'cpu' else 'cuda'
torch.set_default_dtype(torch.float32)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == 'tf32'

def gflops_per_thread(n=512):
    a, b, best = torch.randn(n, n), torch.randn(n, n), 1e9
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * n ** 3 / best / 1e9 / threads
if device == 'cpu' and gflops_per_thread() < 8:
    print('slow %.1f' % gflops_per_thread())
    sys.exit()

class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x, mask):
        B, T, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(d, 2)
        q, k, v = [t.view(B, T, self.h, d // self.h).transpose(1, 2) for t in (q, k, v)]
        if hasattr(F, 'scaled_dot_product_attention'):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            a = (q @ k.transpose(2, 3)) * (d // self.h) ** -0.5
            y = torch.softmax(a.masked_fill(mask, float('-inf')), 3) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, d))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate='tanh'))

class Gpt(nn.Module):
    def __init__(self, vocab, d, layers, h, T):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(T, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.register_buffer('mask', torch.ones(T, T, dtype=torch.bool).triu(1))
    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks: x = block(x, self.mask)
        return self.head(self.norm(x))

def training(model, inputs, targets, kind=torch.optim.Adam):
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    on_gpu = dict(fused=True, capturable=True) if device == 'cuda' else {}
    optimizer = kind(model.parameters(), lr=1e-4, **on_gpu)
    def loss_of(inputs, targets):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == 'bf16'):
            logits = model(inputs)
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    if form == 'compiled': loss_of = torch.compile(loss_of)
    def step():
        optimizer.zero_grad(set_to_none=form != 'graph')
        loss = loss_of(inputs, targets)
        loss.backward()
        if work.endswith('_clipped'): nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    if form != 'graph': return lambda: step().item()
    # Warm up beside the main stream, record one step, replay it.
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3): step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): loss = step()
    def replay():
        graph.replay()
        return loss.item()
    return replay

def gpt(B, T, d, layers, h, vocab=256, kind=torch.optim.Adam):
    return training(Gpt(vocab, d, layers, h, T), torch.randint(0, vocab, (B, T)), torch.randint(0, vocab, (B, T)), kind)

at_once = 1
def product(m, k, n):
    global at_once
    dtype = {'f16': torch.float16, 'bf16': torch.bfloat16}.get(precision, torch.float32)
    a, b = torch.randn(m, k, device=device, dtype=dtype), torch.randn(k, n, device=device, dtype=dtype)
    if work.endswith('_weights'): b = torch.randn(n, k, device=device, dtype=dtype).t()
    at_once = 32 if device == 'cuda' else 1
    def run():
        for _ in range(at_once): result = a @ b
        return result[0, 0].item()
    return run

size = work.replace('_clipped', '').replace('_mixed', '')
if size == 'small': run = gpt(8, 128, 256, 4, 8)
elif size == 'tiny': run = gpt(16, 32, 64, 2, 4)
elif size == 'gpt2': run = gpt(8, 1024, 768, 12, 12, 50304, torch.optim.AdamW)
elif work == 'mlp':
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    run = training(net, torch.randn(128, 784), torch.randint(0, 10, (128,)))
else:
    sizes = [int(s) for s in work[len('matmul'):].split('_')[0].split('x')]
    run = product(*(sizes if len(sizes) == 3 else sizes * 3))

def seconds_of(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

# A clock drops while the host compiles: what GpuClock::warm does, on the work itself. Returns the fastest time.
def warm(work, at_least=0.4, at_most=4, unchanged=0.15, faster=0.99):
    fastest, start = float('inf'), time.perf_counter()
    now = since = start
    while now - start < at_most and (now - start < at_least or now - since < unchanged):
        seconds = seconds_of(work)
        now = time.perf_counter()
        if seconds < fastest * faster: since = now
        fastest = min(fastest, seconds)
    return fastest

# What GpuClock times.
def clock_work(n=2048):
    a, b = torch.rand(n, n, device=device), torch.rand(n, n, device=device)
    def products():
        for _ in range(8): result = a @ b
        return result[0, 0].item()
    return products

for _ in range(3): run()
warm(run)
if device == 'cuda':
    products = clock_work()
    best = warm(products)
end = time.perf_counter() + seconds
count = 0
while count < 3 or time.perf_counter() < end:
    print(seconds_of(run) / at_once)
    count += 1
if device == 'cuda':
    current = min(seconds_of(products) for _ in range(3))
    print('clock', min(best, current) / current)
)";

// Quotes a text as one word of a command line.
std::string for_shell(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

// The distribution's PyTorch is installed for the system's Python.
std::string python() {
  if (const char* chosen = std::getenv("JERBOA_PYTHON")) return chosen;
  return std::system("/usr/bin/python3 -c 'import torch' 2>/dev/null") == 0 ? "/usr/bin/python3" : "python3";
}

// Describes how a process that a shell ran has ended; for one that a signal ended, a shell returns 128 plus the signal.
std::string ending(int status) {
  int signal = 0;
  if (WIFSIGNALED(status)) signal = WTERMSIG(status);
  if (WIFEXITED(status) && WEXITSTATUS(status) > 128) signal = WEXITSTATUS(status) - 128;
  if (signal != 0)
    return fmt::format("was ended by signal {} ({}); it may be built for another processor", signal, strsignal(signal));
  return fmt::format(
      "did not run (exit status {}): install Debian's python3-torch, or set JERBOA_PYTHON to a Python that has it",
      WEXITSTATUS(status));
}

}  // namespace

TorchSamples torch_samples(const TorchRun& run) {
  static const std::string interpreter = python();
  const int threads = run.threads > 0 ? run.threads : static_cast<int>(std::thread::hardware_concurrency());
  const std::string command = fmt::format("exec {} -c {} {} {} {} {} {}", for_shell(interpreter), for_shell(program),
                                          run.work, run.form, run.precision, threads, run.seconds);
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw Error(fmt::format("PyTorch cannot be started: {}", std::strerror(errno)));
  TorchSamples result;
  double sample = 0, slow = 0;
  while (std::fscanf(pipe, "%lf", &sample) == 1) result.seconds.push_back(sample);
  const bool is_slow = result.seconds.empty() && std::fscanf(pipe, "slow %lf", &slow) == 1;
  if (!is_slow && std::fscanf(pipe, "clock %lf", &sample) == 1) result.clock = sample;
  const int status = pclose(pipe);
  if (status != 0) throw Error(fmt::format("PyTorch ({}, {}) {}", run.form, run.precision, ending(status)));
  if (is_slow)
    throw Error(
        fmt::format("PyTorch's own matrix product reaches only {:.1f} GFLOP/s per thread: it found no fast BLAS, so a "
                    "comparison would be meaningless; install libopenblas0-pthread",
                    slow));
  if (result.seconds.empty()) throw Error(fmt::format("PyTorch ({}, {}) measured nothing", run.form, run.precision));
  return result;
}

}  // namespace jerboa::cli
