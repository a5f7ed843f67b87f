import assert from "node:assert/strict";
import { test } from "node:test";

import { FileError, JerboaError, Program, readSafetensors, type Tensor, tensor } from "../src/index.js";
import { changed, readCase, withDevice } from "./support.js";

// A program file is untrusted code: whatever is changed in it, checksums included, it is refused with one of our errors,
// or it runs.

const x = tensor(Float32Array.from({ length: 60 }, (_, i) => Math.sin(i)), [10, 6]);
const y = tensor(Float32Array.from({ length: 30 }, (_, i) => Math.cos(i)), [10, 3]);

/** SplitMix64, so that failures can be reproduced. */
function generator(seed: bigint): (count: number) => number {
  let state = seed;
  return (count) => {
    state = BigInt.asUintN(64, state + 0x9e3779b97f4a7c15n);
    let mixed = state;
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n);
    mixed = BigInt.asUintN(64, (mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn);
    return Number((mixed ^ (mixed >> 31n)) % BigInt(count));
  };
}

/** The location of a value in JSON. */
interface Place {
  readonly holder: any;
  readonly key: string | number;
}

function places(holder: any, found: Place[] = []): Place[] {
  for (const key of Object.keys(holder)) {
    found.push({ holder, key });
    if (typeof holder[key] === "object" && holder[key] !== null) places(holder[key], found);
  }
  return found;
}

function mutate(root: any, random: (count: number) => number): void {
  const all = places(root);
  const pick = () => all[random(all.length)]!;
  const { holder, key } = pick();
  const value = holder[key];
  const other = pick();
  const choices: unknown[] = [structuredClone(other.holder[other.key]), null, 0, 1, -1, "T", [], {}, true];
  if (typeof value === "number") choices.push(value + 1, value - 1, -value, value * 2, 0.5, 2 ** 31, 2 ** 40, 2 ** 53, 1e300);
  if (Array.isArray(value)) choices.push([...value, ...value], value.slice(1));
  holder[key] = choices[random(choices.length)];
}

interface Case {
  readonly name: string;
  readonly rounds: number;
  /** Limited because compiling the shaders of accepted files takes most of the time. */
  readonly maxRuns: number;
  readonly symbols: ReadonlyMap<string, number>;
  /** The inputs of an entry of the case's program. */
  inputs(entry: string): Promise<Record<string, Tensor>>;
}

const cases: Case[] = [
  { name: "regression", rounds: 400, maxRuns: 60, symbols: new Map([["N", x.shape[0]!]]), inputs: async () => ({ x, y }) },
  // Gathers, reductions, and attention over caches.
  { name: "llama_decode", rounds: 400, maxRuns: 20, symbols: new Map([["T", 7]]), inputs: firstInputs },
];

/** The inputs of the entry's first run. */
async function firstInputs(entry: string): Promise<Record<string, Tensor>> {
  const { metadata, tensors } = readSafetensors(await readCase("llama_decode")("inputs.safetensors"));
  const prefix = `${Math.max(metadata.get("entries")!.split(" ").indexOf(entry), 0)}/`;
  return Object.fromEntries([...tensors].filter(([name]) => name.startsWith(prefix)).map(([name, values]) => [name.slice(prefix.length), values]));
}

/** The file chooses the amount of work: many workgroups or long loops in a shader are not an error, but take long. */
function isSmall(loaded: Program, symbols: ReadonlyMap<string, number>): boolean {
  const steps = loaded.entries.flatMap((entry) => entry.steps);
  return steps.every((step) => step.workgroups.evaluate(symbols) < 2000 && step.sizes.every((size) => Math.abs(size.evaluate(symbols)) < 2000));
}

for (const { name, rounds, maxRuns, symbols, inputs } of cases)
  test(`programs with anything changed are refused or run: ${name}`, { timeout: 600_000 }, () =>
    withDevice(async (device) => {
      const program = await readCase(name)("program.jerboa");
      const random = generator(2026n);
      let refused = 0;
      let ran = 0;
      for (let round = 0; round < rounds; ++round) {
        const bytes = changed(program, (contents) => {
          for (let i = random(3); i >= 0; --i) mutate([contents.needs, contents.programs, contents.code, contents.indices][random(4)], random);
        });
        try {
          const loaded = await Program.load(device, bytes);
          if (!isSmall(loaded, symbols) || ran >= maxRuns) continue;
          const session = await loaded.createSession();
          try {
            for (const entry of loaded.entries) {
              const given = await inputs(entry.name);
              const wanted = entry.inputs.map(({ name: input }) => [input, given[input] ?? x] as const);
              const out = await session.run(entry.name, Object.fromEntries(wanted));
              for (const output of entry.outputs) await out.read(output.name);
            }
            ++ran;
          } finally {
            session.destroy();
          }
        } catch (error) {
          assert.ok(error instanceof JerboaError, `round ${round}: ${error instanceof Error ? error.stack : String(error)}`);
          if (error instanceof FileError) ++refused;
        }
      }
      assert.ok(refused > rounds / 4, `${refused} were refused`);
      assert.ok(ran > 5, `${ran} ran`);
    }),
  );
