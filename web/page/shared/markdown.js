// Renders Markdown as elements: headings, paragraphs, lists, quotes, tables, rules, code, emphasis, links. A model's
// output never becomes markup by itself: every text is a text node.

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

const inlinePattern = /(`+)([^]*?[^`])\1(?!`)|(\*\*|__)(?=\S)([^]*?\S)\3|(\*|_)(?=[^\s*_])([^]*?[^\s*_])\5(?![A-Za-z0-9])|~~([^~]+)~~|\[([^\]\n]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"])|\\([\\`*_{}[\]()#+\-.!~|>])/;

function link(address, children) {
  if (!/^(https?:|mailto:)/i.test(address)) return element("span", "", ...children);
  const made = element("a", "", ...children);
  made.href = address;
  made.rel = "noopener noreferrer";
  made.target = "_blank";
  return made;
}

export function inline(text) {
  const out = [];
  while (text) {
    const found = inlinePattern.exec(text);
    if (!found) break;
    const [all, , code, , strong, mark, emphasis, struck, label, address, bare, escaped] = found;
    const before = text.slice(0, found.index);
    // snake_case is not emphasis.
    if (mark === "_" && /[A-Za-z0-9]$/.test(before)) {
      out.push(before + "_");
      text = text.slice(found.index + 1);
      continue;
    }
    if (before) out.push(before);
    if (code !== undefined) out.push(element("code", "", code.replace(/^ (.*) $/s, "$1")));
    else if (strong !== undefined) out.push(element("strong", "", ...inline(strong)));
    else if (emphasis !== undefined) out.push(element("em", "", ...inline(emphasis)));
    else if (struck !== undefined) out.push(element("s", "", ...inline(struck)));
    else if (label !== undefined) out.push(link(address, inline(label)));
    else if (bare !== undefined) out.push(link(bare, [bare]));
    else out.push(escaped);
    text = text.slice(found.index + all.length);
  }
  if (text) out.push(text);
  return out;
}

function codeBlock(language, text) {
  const copy = element("button", "", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  const head = element("div", "code-head", element("span", "", language || "text"), copy);
  return element("div", "code", head, element("pre", "", element("code", "", text)));
}

const item = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const rule = /^\s*([-*_])(\s*\1){2,}\s*$/;
const fence = /^\s*(`{3,}|~{3,})\s*([^\s`]*)/;
const isTableRule = (line) => /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(line ?? "") && (line ?? "").includes("-");
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
const startsBlock = (line) => fence.test(line) || item.test(line) || rule.test(line) || /^#{1,6}\s/.test(line) || /^\s*>/.test(line);

function list(lines, start) {
  const [, indent, mark] = item.exec(lines[start]);
  const isOrdered = /\d/.test(mark);
  const made = element(isOrdered ? "ol" : "ul");
  if (isOrdered && parseInt(mark) !== 1) made.start = parseInt(mark);
  let at = start;
  while (at < lines.length) {
    const found = item.exec(lines[at]);
    if (!found || found[1].length !== indent.length || /\d/.test(found[2]) !== isOrdered || rule.test(lines[at])) break;
    const content = [found[3]];
    const inner = found[1].length + found[2].length + 1;
    for (++at; at < lines.length; ++at) {
      const isInner = /^\s*/.exec(lines[at])[0].length > indent.length;
      const isBlank = !lines[at].trim();
      if (isBlank && !/^\s+\S/.test(lines[at + 1] ?? "")) break;
      if (!isBlank && !isInner && startsBlock(lines[at])) break;
      content.push(lines[at].slice(Math.min(inner, /^\s*/.exec(lines[at])[0].length)));
    }
    const children = blocks(content);
    // A single paragraph is unwrapped.
    const isSimple = children[0]?.tagName === "P";
    made.append(element("li", "", ...(isSimple ? [...children[0].childNodes, ...children.slice(1)] : children)));
    while (at < lines.length && !lines[at].trim() && item.test(lines[at + 1] ?? "")) ++at;
  }
  return [made, at];
}

function table(lines, start) {
  const row = (line, name) => element("tr", "", ...cells(line).map((cell) => element(name, "", ...inline(cell))));
  const body = element("tbody");
  let at = start + 2;
  for (; at < lines.length && lines[at].includes("|"); ++at) body.append(row(lines[at], "td"));
  return [element("table", "", element("thead", "", row(lines[start], "th")), body), at];
}

function blocks(lines) {
  const out = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const fenced = fence.exec(line);
    if (!line.trim()) {
      ++at;
    } else if (fenced) {
      const end = lines.findIndex((other, i) => i > at && other.trim().startsWith(fenced[1]) && !other.trim().slice(fenced[1].length).trim());
      const last = end < 0 ? lines.length : end;
      out.push(codeBlock(fenced[2], lines.slice(at + 1, last).join("\n")));
      at = last + 1;
    } else if (/^#{1,6}\s/.test(line)) {
      const level = /^#+/.exec(line)[0].length;
      out.push(element(`h${Math.min(level, 4)}`, "", ...inline(line.replace(/^#+\s+/, "").replace(/\s+#+\s*$/, ""))));
      ++at;
    } else if (rule.test(line)) {
      out.push(element("hr"));
      ++at;
    } else if (/^\s*>/.test(line)) {
      const first = at;
      while (at < lines.length && /^\s*>/.test(lines[at])) ++at;
      out.push(element("blockquote", "", ...blocks(lines.slice(first, at).map((one) => one.replace(/^\s*> ?/, "")))));
    } else if (item.test(line)) {
      const [made, next] = list(lines, at);
      out.push(made);
      at = next;
    } else if (line.includes("|") && isTableRule(lines[at + 1])) {
      const [made, next] = table(lines, at);
      out.push(made);
      at = next;
    } else {
      const first = at;
      for (++at; at < lines.length && lines[at].trim() && !startsBlock(lines[at]); ++at);
      const paragraph = element("p");
      lines.slice(first, at).forEach((one, i, all) => {
        paragraph.append(...inline(i + 1 < all.length ? one.replace(/\s+$/, "") + "\n" : one));
      });
      out.push(paragraph);
    }
  }
  return out;
}

/** The elements of a Markdown text, which may end anywhere. */
export function markdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"));
}
