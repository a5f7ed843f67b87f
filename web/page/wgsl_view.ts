import { make } from "./dom.js";

// Highlights keywords, types, numbers and comments in WGSL.

const pattern =
  /(\/\/[^\n]*)|(@\w+)|\b(fn|let|var|const|if|else|for|while|loop|return|break|continue|switch|case|default|struct|enable|override|true|false)\b|\b(f32|f16|i32|u32|bool|vec[234]\w?|mat\w+|array|atomic|ptr|storage|uniform|workgroup|function|private|read|read_write)\b|\b(\d[\w.]*(?:[eE][-+]?\d+)?[fuih]?)\b/g;
const kinds = ["comment", "attribute", "keyword", "type", "number"];

export function highlighted(source: string): (Node | string)[] {
  const parts: (Node | string)[] = [];
  let end = 0;
  for (const match of source.matchAll(pattern)) {
    parts.push(source.slice(end, match.index));
    const kind = kinds[match.slice(1).findIndex((group) => group !== undefined)]!;
    parts.push(make("span", `wgsl-${kind}`, match[0]));
    end = match.index + match[0].length;
  }
  parts.push(source.slice(end));
  return parts;
}
