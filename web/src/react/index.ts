export * from "./use_language_model.js";
export * from "./use_trainer.js";
