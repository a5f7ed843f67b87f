// The tests of models and of pages' use of them, under Node. Those of programs are in programs.ts.
import "./cache.test.js";
import "./encoder.test.js";
import "./language.test.js";
import "./loading.test.js";
import "./memory.test.js";
import "./react.test.js";
import "./sampling.test.js";
