import { UsageError } from "../src/index.js";

// Texts to train on, from files, from the clipboard and from drops.

export interface NamedText {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const maxBytes = 256 * 2 ** 20;

export async function readText(file: File): Promise<NamedText> {
  if (file.size > maxBytes) throw new UsageError(`${file.name} has ${sizeText(file.size)}; this page takes texts of up to ${sizeText(maxBytes)}`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (bytes.subarray(0, 65536).includes(0)) throw new UsageError(`${file.name} is not a text: it has zero bytes`);
  return { name: file.name, bytes };
}

export function pastedText(text: string): NamedText {
  return { name: "Your text", bytes: new TextEncoder().encode(text) };
}

/** Replaces characters that cannot be shown, which an untrained model generates a lot, by dots. */
export function readable(text: string): string {
  return text.replace(/[\ufffd\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "·");
}

export function sizeText(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB"];
  let unit = 0;
  let size = bytes;
  for (; size >= 1000 && unit + 1 < units.length; ++unit) size /= 1000;
  return `${unit === 0 ? size : size.toFixed(size < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Handles files and texts that are dropped anywhere on the page, or pasted outside of a field. */
export function onGiven(take: { files(files: readonly File[]): void; text?(text: string): void }): void {
  const show = (isShown: boolean) => document.body.classList.toggle("dropping", isShown);
  const has = (event: DragEvent, type: string) => event.dataTransfer?.types.includes(type) ?? false;
  const isInField = (event: Event) => event.target instanceof HTMLElement && event.target.closest("input, textarea") !== null;
  // A text that is dragged to a field belongs to the field.
  const isForPage = (event: DragEvent) => has(event, "Files") || (take.text !== undefined && has(event, "text/plain") && !isInField(event));
  addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) show(false); // the pointer left the window
  });
  addEventListener("dragover", (event) => {
    show(isForPage(event));
    if (isForPage(event)) event.preventDefault();
  });
  addEventListener("drop", (event) => {
    show(false);
    if (!isForPage(event)) return;
    event.preventDefault();
    void given(event.dataTransfer, take);
  });
  addEventListener("paste", (event) => {
    if (!isInField(event)) void given(event.clipboardData, take);
  });
}

async function given(data: DataTransfer | null, take: Parameters<typeof onGiven>[0]): Promise<void> {
  if (data === null) return;
  const text = data.getData("text/plain");
  const entries = [...data.items].map((item) => (item.kind === "file" ? item.webkitGetAsEntry() : null));
  const files = [...data.files];
  const folders = entries.filter((entry) => entry?.isDirectory === true);
  for (const folder of folders) files.push(...(await filesIn(folder as FileSystemDirectoryEntry)));
  const whole = files.filter((file) => !folders.some((folder) => folder!.name === file.name));
  if (whole.length > 0) take.files(whole);
  else if (text !== "") take.text?.(text);
}

/** The files in the folder itself, not those in its subfolders. */
async function filesIn(folder: FileSystemDirectoryEntry): Promise<File[]> {
  const reader = folder.createReader();
  const found: File[] = [];
  for (;;) {
    const entries = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (entries.length === 0) return found;
    for (const entry of entries)
      if (entry.isFile) found.push(await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)));
  }
}
