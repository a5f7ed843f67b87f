/** An element that must exist in the page's HTML. */
export function byId<T extends Element = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found as unknown as T;
}

/** Creates an element with a class, and with elements or texts as children. */
export function make<K extends keyof HTMLElementTagNameMap>(name: K, className = "", ...children: readonly (Node | string)[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (className !== "") made.className = className;
  made.append(...children);
  return made;
}

/** The same for SVG. */
export function makeSvg<K extends keyof SVGElementTagNameMap>(name: K, attributes: Readonly<Record<string, string | number>>, ...children: readonly (Node | string)[]): SVGElementTagNameMap[K] {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** Offers bytes as a download. */
export function download(bytes: Uint8Array<ArrayBuffer>, name: string): void {
  const address = URL.createObjectURL(new Blob([bytes]));
  const link = make("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
