import { type Question, write } from "./write.js";

// The same as the page does, in a worker.

self.onmessage = async ({ data }: MessageEvent<Question>) => {
  try {
    await write(data, (state) => self.postMessage({ state }), (piece) => self.postMessage({ piece }));
    self.postMessage({ state: "done" });
  } catch (error) {
    self.postMessage({ state: `failed: ${error}` });
  }
};
