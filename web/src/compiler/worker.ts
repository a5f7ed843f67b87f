import { type Answer, type Call, type Opening, callModule } from "./client.js";
import { CompilerModule } from "./module.js";

// Runs the compiler in a worker: the first message opens it, every other one is a call.

const scope = globalThis as unknown as { onmessage: ((event: MessageEvent) => void) | null; postMessage(answer: Answer, transfer: Transferable[]): void };

function answer(id: number, body: () => unknown): void {
  try {
    const result = body();
    scope.postMessage({ id, result }, result instanceof Uint8Array ? [result.buffer as ArrayBuffer] : []);
  } catch (error) {
    scope.postMessage({ id, error: { name: (error as Error).name, message: (error as Error).message } }, []);
  }
}

scope.onmessage = async ({ data }: MessageEvent<Opening>) => {
  try {
    const module = await CompilerModule.load(data.source);
    scope.onmessage = ({ data: call }: MessageEvent<Call>) => answer(call.id, () => callModule(module, call));
    answer(0, () => undefined);
  } catch (error) {
    answer(0, () => {
      throw error;
    });
  }
};
