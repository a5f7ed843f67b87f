// The tests of programs and of the compiler, under Node. Those of models run in another process, so that both cores of a
// small machine are used; in each process, tests share a device: node --test dist/test/programs.js
import "./arguments.test.js";
import "./cases.test.js";
import "./compiler.test.js";
import "./dim.test.js";
import "./graph.test.js";
import "./mutation.test.js";
import "./run_checks.test.js";
import "./same_graphs.test.js";
import "./serve.test.js";
import "./session.test.js";
import "./source.test.js";
import "./training_run.test.js";
import "./unicode.test.js";
import "./values.test.js";
