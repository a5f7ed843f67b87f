import { Program, type Tensor, readSafetensors } from "../src/index.js";

// Runs a case that tests/web exported, under Node or in a page, and compares it with the results of the native hosts.

export const caseNames = ["regression", "gpt", "llama_decode"] as const;

export interface CaseReport {
  readonly runs: number;
  /** The largest differences |a - b| / (1 + |b|) from the native results. */
  readonly fromWebgpu: number;
  readonly fromCpu: number;
  readonly losses: readonly number[];
  readonly milliseconds: number;
}

export type ReadFile = (name: string) => Promise<Uint8Array>;

function difference(name: string, computed: Tensor, wanted: Tensor): number {
  if (computed.shape.join() !== wanted.shape.join() || computed.dtype !== wanted.dtype)
    throw new Error(`${name}: ${computed.dtype}[${computed.shape}] where ${wanted.dtype}[${wanted.shape}] is wanted`);
  let most = 0;
  for (let i = 0; i < wanted.data.length; ++i) {
    const error = Math.abs(computed.data[i]! - wanted.data[i]!) / (1 + Math.abs(wanted.data[i]!));
    if (!(error <= most)) most = error; // NaN too
  }
  return most;
}

export async function checkCase(device: GPUDevice, read: ReadFile): Promise<CaseReport> {
  const began = performance.now();
  const program = await Program.load(device, await read("program.jerboa"));
  const session = await program.createSession({ parameters: await read("parameters.safetensors") });
  const inputs = readSafetensors(await read("inputs.safetensors"));
  const results = new Map<string, Tensor>();
  const entries = inputs.metadata.get("entries")!.split(" ");
  for (const [number, entry] of entries.entries()) {
    const runInputs: Record<string, Tensor> = {};
    for (const [name, values] of inputs.tensors)
      if (name.startsWith(`${number}/`)) runInputs[name.slice(name.indexOf("/") + 1)] = values;
    const out = await session.run(entry, runInputs);
    for (const name of out.names) results.set(`${number}/${name}`, await out.read(name));
  }
  for (const [name, values] of await session.downloadParameters()) results.set(`final/${name}`, values);
  session.destroy();
  const compare = async (file: string) => {
    const wanted = readSafetensors(await read(file)).tensors;
    if ([...wanted.keys()].sort().join() !== [...results.keys()].sort().join()) throw new Error(`${file} has other results`);
    return Math.max(...[...wanted].map(([name, values]) => difference(name, results.get(name)!, values)));
  };
  const losses = [...results].filter(([name]) => name.endsWith("/loss")).map(([, loss]) => loss.data[0]!);
  return {
    runs: entries.length,
    fromWebgpu: await compare("webgpu.safetensors"),
    fromCpu: await compare("cpu.safetensors"),
    losses,
    milliseconds: performance.now() - began,
  };
}
