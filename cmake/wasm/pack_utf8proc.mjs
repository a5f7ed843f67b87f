// Packs utf8proc's tables, which would be half of the data in a gzipped jerboa.wasm, into less than half their size:
//   node pack_utf8proc.mjs UTF8PROC_FOLDER OUTPUT
// The output replaces utf8proc_data.c. Most numbers are close to the one before, which gzip can exploit only if it gets
// the differences, with high and low bytes separated, column by column. They are added up again when the program starts.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [folder, output] = process.argv.slice(2);
const header = readFileSync(join(folder, "utf8proc.h"), "utf8");
const data = readFileSync(join(folder, "utf8proc_data.c"), "utf8").replaceAll(/\/\*.*?\*\//gs, "");

const fields = ["category", "combining_class", "bidi_class", "decomp_type", "decomp_seqindex", "casefold_seqindex", "uppercase_seqindex",
  "lowercase_seqindex", "titlecase_seqindex", "comb_index", "bidi_mirrored", "comp_exclusion", "ignorable", "control_boundary", "charwidth",
  "pad", "boundclass"];
const none = 0xffff;
const names = new Map([["true", 1], ["false", 0], ["UINT16_MAX", none]]);
for (const [, name, value] of header.matchAll(/\b(UTF8PROC_\w+)\s*=\s*(\d+)/g)) names.set(name, Number(value));

function numberOf(text) {
  const value = /^\d+$/.test(text) ? Number(text) : names.get(text);
  if (value === undefined || value > none) throw new Error(`pack_utf8proc: unexpected ${text}`);
  return value;
}
const numbers = (list) => list.split(",").map((text) => text.trim()).filter((text) => text !== "").map(numberOf);

const tables = new Map([...data.matchAll(/static const (\w+) (\w+)\[\] = \{(.*?)\};\s*$/gms)].map(([, type, name, list]) => [name, { type, list }]));
const packed = [];

// The code for `none`; any other value is the difference from the last number that was not `none`.
const noneCode = 0x8000;
function pack(column) {
  let last = 0;
  const codes = column.map((value) => {
    if (value === none) return noneCode;
    const code = (value - last) & none;
    if (code === noneCode) throw new Error("pack_utf8proc: a difference of 32768 cannot be told from none");
    last = value;
    return code;
  });
  packed.push(...codes.map((code) => code & 255), ...codes.map((code) => code >> 8));
}

let declarations = "";
let body = "";
for (const [name, { type, list }] of tables) {
  if (type === "utf8proc_property_t") {
    const rows = [...list.matchAll(/\{([^{}]*)\}/g)].map(([, row]) => numbers(row));
    if (rows.some((row) => row.length !== fields.length)) throw new Error("pack_utf8proc: properties have other fields");
    declarations += `static utf8proc_property_t ${name}[${rows.length}];\n`;
    for (const [i, field] of fields.entries()) {
      pack(rows.map((row) => row[i]));
      body += `  UNPACK(${name}, ${rows.length}, .${field})\n`;
    }
  } else {
    const values = numbers(list);
    declarations += `static ${type} ${name}[${values.length}];\n`;
    pack(values);
    body += `  UNPACK(${name}, ${values.length}, )\n`;
  }
}
if (tables.size !== 5) throw new Error(`pack_utf8proc: utf8proc_data.c has ${tables.size} tables, not 5`);

writeFileSync(
  output,
  `${declarations}
static const unsigned char utf8proc_packed[] = {
${packed.join(",").replaceAll(/(.{120,}?),/g, "$1,\n")}
};

#define UNPACK(table, count, field) \\
  for (unsigned i = 0, last = 0; i < count; ++i) { \\
    const unsigned code = from[i] | from[i + count] << 8; \\
    table[i] field = code == ${noneCode} ? ${none} : (last = (last + code) & ${none}); \\
  } \\
  from += 2 * count;

/* Before any other code that may look something up. */
__attribute__((constructor(101))) static void utf8proc_unpack(void) {
  const unsigned char* from = utf8proc_packed;
${body}}
`,
);
