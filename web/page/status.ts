import { byId } from "./dom.js";

// The line #status: what the page is doing, and for how long.

let timer: ReturnType<typeof setInterval> | undefined;

export function showBusy(doing: string): void {
  clearInterval(timer);
  const began = performance.now();
  const line = byId("status");
  line.classList.add("busy");
  const show = () => {
    const seconds = Math.floor((performance.now() - began) / 1000);
    line.textContent = `${doing} …${seconds >= 2 ? ` ${seconds} s` : ""}`;
  };
  show();
  timer = setInterval(show, 1000);
}

export function showReady(text: string): void {
  clearInterval(timer);
  byId("status").classList.remove("busy");
  byId("status").textContent = text;
}
