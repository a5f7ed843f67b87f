/** config.json of SmolLM2-135M, of whose shapes the models of the benchmarks are. */
export const smolLm2 = {
  model_type: "llama",
  architectures: ["LlamaForCausalLM"],
  vocab_size: 49152,
  hidden_size: 576,
  intermediate_size: 1536,
  num_hidden_layers: 30,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  max_position_embeddings: 8192,
  rope_theta: 100000,
  rms_norm_eps: 1e-5,
  hidden_act: "silu",
  tie_word_embeddings: true,
} as const;
