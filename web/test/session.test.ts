import assert from "node:assert/strict";
import { test } from "node:test";

import { DeviceLostError, FileError, Program, ShaderError, UnsupportedError, UsageError, openDevice, readSafetensors, tensor } from "../src/index.js";
import { Gpu } from "../src/device.js";
import { constantDim } from "../src/dim.js";
import { checkInputIndices } from "../src/input_indices.js";
import { readSections, writeSections } from "../src/sections.js";
import { changed, gpu, onlyEntry, readCase, withDevice } from "./support.js";

const read = readCase("regression");
const program = await read("program.jerboa");
const x = tensor(Float32Array.from({ length: 60 }, (_, i) => Math.sin(i)), [10, 6]);
const y = tensor(Float32Array.from({ length: 30 }, (_, i) => Math.cos(i)), [10, 3]);

test("storage stays between runs and entries, and a checkpoint continues bit for bit", () =>
  withDevice(async (device) => {
    const loaded = await Program.load(device, program);
    const session = await loaded.createSession({ seed: 3 });
    await session.run("step", { x, y });
    const before = await (await session.run("forward", { x })).read("output");
    const saved = await session.save();
    const wanted = await (await session.run("step", { x, y })).number("loss");
    const after = await (await session.run("forward", { x })).read("output");
    assert.notDeepEqual(before, after);

    const other = await loaded.createSession({ parameters: saved });
    assert.deepEqual(await (await other.run("forward", { x })).read("output"), before);
    assert.equal(await (await other.run("step", { x, y })).number("loss"), wanted);
    assert.deepEqual(await (await other.run("forward", { x })).read("output"), after);
    other.reset(3);
    await other.run("step", { x, y });
    assert.deepEqual(await (await other.run("forward", { x })).read("output"), before);
  }));

test("a checkpoint is consistent, whatever runs while it is made", () =>
  withDevice(async (device) => {
    const session = await (await Program.load(device, program)).createSession({ seed: 3 });
    await session.run("step", { x, y });
    const wanted = readSafetensors(await session.save());
    const saving = session.save();
    await session.run("step", { x, y });
    assert.deepEqual(readSafetensors(await saving), wanted);
  }));

test("a checkpoint of a native session is loaded, and saved unchanged", () =>
  withDevice(async (device) => {
    const checkpoint = await read("checkpoint.safetensors");
    const session = await (await Program.load(device, program)).createSession({ parameters: checkpoint });
    assert.deepEqual(readSafetensors(await session.save()), readSafetensors(checkpoint));
  }));

test("runs that are not awaited execute in order", () =>
  withDevice(async (device) => {
    const loaded = await Program.load(device, program);
    const one = await loaded.createSession();
    const many = await loaded.createSession();
    const wanted: number[] = [];
    for (let i = 0; i < 6; ++i) wanted.push(await (await one.run("step", { x, y })).number("loss"));
    const losses = await Promise.all(wanted.map(() => many.run("step", { x, y }).then((out) => out.number("loss"))));
    assert.deepEqual(losses, wanted);
    const pipelines = Gpu.of(device).pipelines.count;
    await loaded.createSession();
    assert.equal(Gpu.of(device).pipelines.count, pipelines);
  }));

test("entries of another program are added to a session, in any order", () =>
  withDevice(async (device) => {
    const gpt = await readCase("gpt")("program.jerboa"); // its step pools parameters
    const ids = tensor(Int32Array.from({ length: 64 }, (_, i) => (i * 7) % 256), [4, 16]);
    const line = tensor(Int32Array.from({ length: 16 }, (_, i) => (i * 11) % 256), [1, 16]);
    const only = (name: string) => Program.load(device, onlyEntry(gpt, name));
    const together = await (await Program.load(device, gpt)).createSession({ seed: 5, entries: ["step", "forward"] });
    const outputs = async (session: Awaited<ReturnType<Program["createSession"]>>) => {
      const before = await (await session.run("forward", { ids: line })).read("output");
      const loss = await (await session.run("step", { ids, targets: ids })).number("loss");
      return [before, loss, await (await session.run("forward", { ids: line })).read("output")];
    };
    const wanted = await outputs(together);
    for (const [first, second] of [["step", "forward"], ["forward", "step"]] as const) {
      const session = await (await only(first)).createSession({ seed: 5 });
      if (first === "forward") assert.deepEqual(await (await session.run("forward", { ids: line })).read("output"), wanted[0]);
      await (await only(second)).addTo(session);
      assert.deepEqual(await outputs(session), wanted);
      await assert.rejects(only(second).then((again) => again.addTo(session)), (error) => error instanceof UsageError && /already has an entry/.test(error.message));
      session.destroy();
    }
  }));

test("entries that are added twice concurrently are added once", () =>
  withDevice(async (device) => {
    const loaded = await Program.load(device, program);
    const session = await loaded.createSession({ seed: 3, entries: [] });
    const [first, second] = await Promise.allSettled([loaded.addTo(session), loaded.addTo(session)]);
    assert.equal(first.status, "fulfilled");
    assert.ok(second.status === "rejected" && second.reason instanceof UsageError && /already has an entry/.test(second.reason.message));
    assert.ok((await (await session.run("step", { x, y })).number("loss")) > 0);
    session.destroy();
  }));

test("uploads while entries are added that move parameters are not lost", () =>
  withDevice(async (device) => {
    const gpt = await readCase("gpt")("program.jerboa");
    const program = (name: string) => Program.load(device, onlyEntry(gpt, name));
    for (let turns = 0; turns < 6; ++turns) {
      const session = await (await program("forward")).createSession({ seed: 5 });
      const values = new Map([...(await session.downloadParameters())].map(([name, value]) => [name, { ...value, data: (value.data as Float32Array).map((one) => one + 1) }]));
      const adding = Promise.all([program("step"), program("decode")].map(async (one) => (await one).addTo(session)));
      for (let turn = 0; turn < turns; ++turn) await new Promise((resolve) => setImmediate(resolve));
      session.upload(values);
      await adding;
      assert.deepEqual(await session.downloadParameters(), values);
      session.destroy();
    }
  }));

test("mistakes are named, and change nothing", () =>
  withDevice(async (device) => {
    const session = await (await Program.load(device, program)).createSession();
    const before = await session.save();
    const refused = (call: Promise<unknown>, text: RegExp) =>
      assert.rejects(call, (error) => error instanceof UsageError && text.test(error.message));
    await refused(session.run("walk", {}), /no entry walk; available: .*step/);
    await refused(session.run("step", { x }), /missing inputs: y/);
    await refused(session.run("step", { x, y, z: x }), /unknown inputs: z/);
    await refused(session.run("step", { x, y: x }), /input y is f32\[10, 6\] but the program takes f32\[10, 3\]/);
    await refused(session.run("step", { x, y: tensor(new Int32Array(30), [10, 3]) }), /y is i32/);
    await refused(session.run("step", { x, y: { ...y, data: new Float32Array(3) } }), /which has 30 elements, but was given 3/);
    await refused(session.run("forward", { x: tensor(new Float32Array(6 * 301), [301, 6]) }), /N = 301 is outside 1 to 300/);
    await refused(session.run("forward", { x: x.data }), /must be passed with its shape/);
    await refused(session.run("forward", { x }, { captures: ["y"] }), /no capture is named y; available: none/);
    await refused(session.download("q"), /no parameter or state is named q; available:/);
    const zeros = tensor(new Float32Array(144), [24, 6]);
    assert.throws(() => session.upload(new Map([["up", zeros], ["down", zeros]])), /down is f32\[3, 24\] but was given/);
    assert.throws(() => session.load(new Uint8Array(3)), FileError);
    assert.deepEqual(await session.save(), before);
    await session.run("step", { x: x.data, y: y.data }); // the program fixes these shapes
    const out = await session.run("forward", { x });
    await refused(out.read("loss"), /no output or capture loss; available: output/);
    await refused(out.number("output"), /not one number/);
    session.destroy();
    await refused(session.run("step", { x, y }), /destroyed/);
    assert.equal((await out.read("output")).data.length, 30);
  }));

test("indices in inputs are checked before anything runs", () =>
  withDevice(async (device) => {
    const loaded = await Program.load(device, await readCase("gpt")("program.jerboa"));
    const session = await loaded.createSession({ entries: ["forward"] });
    const ids = (value: number) => tensor(new Int32Array(16).fill(value), [1, 16]);
    const refused = (value: number, text: RegExp) =>
      assert.rejects(session.run("forward", { ids: ids(value) }), (error) => error instanceof UsageError && text.test(error.message));
    await refused(256, /input ids holds 256, which is out of range for embedding: indices go from 0 to 255/);
    await refused(-1, /input ids holds -1/);
    await session.run("forward", { ids: ids(255) });
  }));

test("only the elements of an input that reach an op are checked", () => {
  const dims = (...sizes: number[]) => sizes.map(constantDim);
  // Columns 0 and 1 of [2, 3], then the second and third of those.
  const views = [
    { shape: dims(2, 2), offset: constantDim(0), strides: dims(3, 1) },
    { shape: dims(2), offset: constantDim(1), strides: dims(1) },
  ];
  const indices = { input: "x", views, limit: constantDim(5), negativeIsNone: false, op: "embedding", site: "model.ts:3" };
  const check = (...values: number[]) => checkInputIndices([indices], new Map([["x", tensor(Int32Array.from(values), [2, 3])]]), new Map());
  check(99, 1, 99, 4, 99, 99);
  assert.throws(() => check(0, 1, 0, 5, 0, 0), /x holds 5, .* from 0 to 4 \(model\.ts:3\)/);
  assert.throws(() => check(0, -7, 0, 0, 0, 0), /x holds -7/);
  const outside = { ...indices, views: [{ ...views[0]!, offset: constantDim(2) }] };
  assert.throws(() => checkInputIndices([outside], new Map([["x", tensor(new Int32Array(6), [2, 3])]]), new Map()), FileError);
});

test("damaged programs are refused", () =>
  withDevice(async (device) => {
    const refused = (bytes: Uint8Array, text: RegExp) =>
      assert.rejects(Program.load(device, bytes), (error) => error instanceof FileError && text.test(error.message));
    await refused(new Uint8Array(0), /not a Jerboa program/);
    await refused(program.subarray(0, 100), /cut off/);
    await refused(changed(program, ({ needs }) => (needs.device = "cpu")), /for the device cpu/);
    await refused(changed(program, ({ code }) => (code[0] = 7)), /its code is not an object/);
    await refused(changed(program, ({ code }) => code.pop()), /code for each entry/);
    await refused(changed(program, ({ code }) => (code[0].steps[0].shader = 999)), /out of range/);
    await refused(changed(program, ({ code }) => (code[0].steps[0].bindings[0].bytes = 1e9)), /beyond its end/);
    await refused(changed(program, ({ code }) => (code[0].steps[0].workgroups = "Q")), /not a size/);
    await refused(changed(program, ({ code }) => (code[0].steps[0].workgroups = 1e12)), /workgroups are out of range/);
    await refused(changed(program, ({ code }) => (code[0].steps[0].workgroups = -1)), /workgroups are out of range/);
    await refused(changed(program, ({ code }) => code[0].steps[0].sizes.push(2 ** 33)), /does not fit u32/);
    await refused(changed(program, ({ indices }) => indices.pop()), /a list of indices for each entry/);
    await refused(changed(program, ({ indices }) => indices[0].push({ input: "x", views: [] })), /x is not an input of integers/);
    await refused(changed(program, ({ programs }) => (programs.storage = [])), /does not match the storage/);
    await refused(changed(program, ({ programs }) => (programs.storage[0].shape = [-1])), /cannot be \[-1\]/);
    await refused(changed(program, ({ programs }) => (programs.entries[0].memory.outputs[0].offset = 1e6)), /is read outside of/);
    await refused(changed(program, ({ programs }) => (programs.entries[0].memory.outputs[0].offset = -1)), /is read outside of/);
    await refused(changed(program, ({ programs }) => (programs.symbols = [])), /not an object|not a size/);
    await refused(changed(program, ({ needs }) => needs.features.push("telepathy")), /needs the feature telepathy, which this host \(0\.1\.0\) does not know/);
    await refused(changed(program, ({ needs }) => (needs.limits.wishes = 3)), /needs the limit wishes/);
    // Checksums detect all damage except between the sections.
    for (let at = 0; at < program.length; at += Math.ceil(program.length / 150)) {
      const damaged = program.slice();
      damaged[at] = damaged[at]! ^ 0x11;
      await Program.load(device, damaged).then(
        () => assert.equal(program[at], 0),
        (error: unknown) => assert.ok(error instanceof FileError, String(error)),
      );
    }
  }));

test("unknown sections and versions are named", () =>
  withDevice(async (device) => {
    const sections = readSections(program);
    const refused = (bytes: Uint8Array, text: RegExp) =>
      assert.rejects(Program.load(device, bytes), (error) => error instanceof FileError && text.test(error.message));
    const kindOf = (from: string, kind: string, required: boolean) =>
      writeSections(sections.map((section) => (section.kind === from ? { ...section, kind, required } : section)));
    await refused(kindOf("GPU ", "WARP", true), /needs the section WARP, which this host \(0\.1\.0\) does not know/);
    await refused(kindOf("GPU ", "WARP", false), /lacks the section GPU/);
    await refused(kindOf("GPU ", "LOOP", false), /steps that repeat \(section LOOP\)/);
    await refused(kindOf("GPU ", "PROG", true), /the section PROG twice/);
    await refused(writeSections(sections, [7, 2, 1]), /needs version 7\.2\.1 of the host or later, but this is 0\.1\.0/);
    const before = program.slice();
    before.set(new TextEncoder().encode("JERBOAP4"));
    await refused(before, /of format 4, but this host \(0\.1\.0\) reads format 5: export it again/);
    const later = program.slice();
    later[8] = 9;
    await refused(later, /of format 9, but this host \(0\.1\.0\) reads format 5: use a later host/);
    assert.deepEqual(writeSections(sections), program);
    const note = { kind: "NOTE", required: false, bytes: new Uint8Array([1, 2, 3]) };
    const loaded = await Program.load(device, writeSections([note, ...sections]));
    assert.deepEqual(loaded.entries.map((entry) => entry.name), (await Program.load(device, program)).entries.map((entry) => entry.name));
  }));

test("a kernel that does not compile is named, with its line", () =>
  withDevice(async (device) => {
    const broken = changed(program, ({ code }) => {
      const shader = code[0].shaders[0];
      shader.name = "the culprit";
      shader.source = shader.source.replace("let group =", "let group = nonsense;\n  let rest =");
    });
    await assert.rejects((await Program.load(device, broken)).createSession(), (error) => {
      assert.ok(error instanceof ShaderError);
      assert.equal(error.kernel, "the culprit");
      assert.match(error.source.split("\n")[error.line - 1]!, /nonsense/);
      assert.match(error.message, /the culprit does not compile: line \d+: .*nonsense/);
      return true;
    });
    await (await Program.load(device, program)).createSession(); // the device still works
  }));

test("missing features and limits are named", async () => {
  const adapter = await gpu.requestAdapter();
  const device = await adapter!.requestDevice();
  const greedy = changed(program, ({ programs, code }) => {
    code[0].uses_f16 = code[0].uses_subgroups = true;
    code[0].subgroup_matrices = [{ rows: 16, columns: 16, inner: 16, operands: "f16", sums: "f32" }];
    programs.entries[0].memory.arenas[0] = 2 ** 40;
  });
  await assert.rejects(Program.load(device, greedy), (error) => {
    assert.ok(error instanceof UnsupportedError);
    assert.equal(error.missing.length, 4);
    for (const text of [/shader-f16/, /subgroups/, /subgroup-matrix/, /maxBufferSize of 1099511627776 \(the device has \d+\)/]) assert.match(error.message, text);
    return true;
  });
  device.destroy();
});

test("the loss of the device rejects pending and later work", async () => {
  const device = await openDevice({ gpu });
  const loaded = await Program.load(device, program);
  const session = await loaded.createSession();
  const out = await session.run("step", { x, y });
  const underWay = [out.read("loss"), session.run("step", { x, y }).then((later) => later.read("loss"))];
  device.destroy();
  const settled = await Promise.allSettled(underWay);
  for (const outcome of settled)
    if (outcome.status === "rejected") assert.ok(outcome.reason instanceof DeviceLostError, String(outcome.reason));
  await device.lost;
  const lost = (call: Promise<unknown>) => assert.rejects(call, (error) => error instanceof DeviceLostError && /is lost/.test(error.message));
  await lost(session.run("step", { x, y }));
  await lost(session.download("up"));
  await lost(loaded.createSession());
  await lost(Program.load(device, program));
});

test("opening a device without WebGPU reports that", async () => {
  const none = { requestAdapter: async () => null } as unknown as GPU;
  await assert.rejects(openDevice({ gpu: none }), /finds no graphics device/);
  await assert.rejects(openDevice(), /^DeviceError: Node has no WebGPU of its own: run `npm install webgpu`, import \{ create \} from "webgpu", and pass \{ gpu: create\(\[\]\) \} as an option$/);
  await assert.rejects(openDevice({ gpu: {} as GPU }), /the option gpu must be a GPU, such as navigator.gpu, not an Object/);
});
