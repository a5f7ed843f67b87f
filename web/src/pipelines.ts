import { type Gpu, GpuUsage } from "./device.js";
import { ShaderError } from "./errors.js";
import type { ShaderSource, Step } from "./program_file.js";

export interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
}

/** The pipelines of a device: compiled asynchronously, once per source. */
export class Pipelines {
  private readonly layouts = new Map<string, GPUBindGroupLayout>();
  private readonly pipelines = new Map<string, Promise<Pipeline>>();

  constructor(private readonly gpu: Gpu) {}

  get count(): number {
    return this.pipelines.size;
  }

  /** Throws ShaderError that names the kernel and the line. */
  get(shader: ShaderSource, step: Step): Promise<Pipeline> {
    const kinds = step.bindings.map((binding) => (binding.written || binding.readWrite ? "w" : "r")).join("") + (step.sizes.length > 0 ? "u" : "");
    const key = `${kinds}\n${shader.source}`;
    let pipeline = this.pipelines.get(key);
    if (pipeline === undefined) {
      pipeline = this.make(shader, this.layout(kinds));
      this.pipelines.set(key, pipeline);
      pipeline.catch(() => this.pipelines.delete(key));
    }
    return pipeline;
  }

  private layout(kinds: string): GPUBindGroupLayout {
    let layout = this.layouts.get(kinds);
    if (layout === undefined) {
      const types: Record<string, GPUBufferBindingType> = { w: "storage", r: "read-only-storage", u: "uniform" };
      const entries = [...kinds].map((kind, binding) => ({
        binding,
        visibility: GpuUsage.computeStage,
        buffer: { type: types[kind]! },
      }));
      layout = this.gpu.device.createBindGroupLayout({ entries });
      this.layouts.set(kinds, layout);
    }
    return layout;
  }

  private async make(shader: ShaderSource, layout: GPUBindGroupLayout): Promise<Pipeline> {
    const { device } = this.gpu;
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code: shader.source, label: shader.name });
    const invalid = device.popErrorScope();
    const pipeline = device.createComputePipelineAsync({
      label: shader.name,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: "main" },
    });
    pipeline.catch(() => undefined);
    const error = await this.gpu.wait(invalid);
    if (error !== null) throw await this.refusal(shader, module, error.message);
    try {
      return { pipeline: await this.gpu.wait(pipeline), layout };
    } catch (failure) {
      this.gpu.check();
      throw await this.refusal(shader, module, (failure as Error).message);
    }
  }

  private async refusal(shader: ShaderSource, module: GPUShaderModule, message: string): Promise<ShaderError> {
    const info = await this.gpu.wait(module.getCompilationInfo());
    const first = info.messages.find((message) => message.type === "error");
    const line = first?.lineNum ?? 0;
    const text = line > 0 ? `line ${line}: ${first!.message}\n  ${shader.source.split("\n")[line - 1] ?? ""}` : message;
    return new ShaderError(`the kernel ${shader.name} does not compile: ${text}`, shader.name, line, shader.source);
  }
}
