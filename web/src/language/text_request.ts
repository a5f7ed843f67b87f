import { asOptions } from "../checks.js";
import { UsageError } from "../errors.js";

// The options of a text, and their form for the compiler.

export interface Sampling {
  /** 0: greedy, always the most likely token. */
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  /** Values that are added to the logits of tokens. */
  readonly logitBias?: ReadonlyMap<number, number> | Readonly<Record<number, number>>;
  /** Tokens that are never drawn. */
  readonly bannedTokens?: readonly number[];
  /** Makes a text reproducible; by default random. */
  readonly seed?: number;
}

export interface GenerateOptions {
  /** By default 256. */
  readonly maxTokens?: number;
  /** By default as the model's generation_config.json recommends. */
  readonly sampling?: Sampling;
  /** The text ends before the first of these. */
  readonly stop?: readonly string[];
  /** A JSON schema that the text must satisfy. */
  readonly schema?: unknown;
  /** A regular expression that the whole text must match. */
  readonly regex?: string;
  /**
   * The most tokens to guess at once from what the text has repeated so far: the text stays the same, and one that
   * repeats its prompt is written faster. By default none.
   */
  readonly drafts?: number;
  /** Log-probabilities of each token and of this many of the most likely ones at its place, at most 20. */
  readonly logprobs?: number;
  readonly signal?: AbortSignal;
}

/** Any integer that JavaScript and JSON represent exactly. */
const drawnSeed = () => Math.floor(Math.random() * 2 ** 53);

const samplingNames = {
  temperature: "temperature",
  topK: "top_k",
  topP: "top_p",
  minP: "min_p",
  repetitionPenalty: "repetition_penalty",
  presencePenalty: "presence_penalty",
  frequencyPenalty: "frequency_penalty",
  logitBias: "logit_bias",
  bannedTokens: "banned_tokens",
  seed: "seed",
} as const satisfies Readonly<Record<keyof Sampling, string>>;

function biasPairs(biases: NonNullable<Sampling["logitBias"]>): (readonly [number, number])[] {
  if (biases instanceof Map) return [...biases];
  return Object.entries(asOptions(biases as Readonly<Record<number, number>>, "logitBias")).map(([token, bias]) => [Number(token), bias!]);
}

function samplingRow(sampling: Sampling | undefined): Record<string, unknown> {
  const row: Record<string, unknown> = { seed: drawnSeed() };
  for (const [key, value] of Object.entries(asOptions(sampling, "sampling"))) {
    const name = samplingNames[key as keyof Sampling];
    if (name === undefined) throw new UsageError(`sampling has no option ${key}; available: ${Object.keys(samplingNames).join(", ")}`);
    if (value !== undefined) row[name] = name === "logit_bias" ? biasPairs(value as NonNullable<Sampling["logitBias"]>) : value;
  }
  return row;
}

/** The options in the form that jerboa_language_submit takes; undefined ones are left out of the JSON. */
export function requestRow(options: GenerateOptions): Record<string, unknown> {
  const { maxTokens, sampling, stop, schema, regex, drafts, logprobs } = asOptions(options, "the options of a text");
  return { sampling: samplingRow(sampling), max_tokens: maxTokens, stop, schema, regex, drafts, logprobs };
}
