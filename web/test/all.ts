// Every test that runs under Node: node --test dist/test/all.js
import "./arguments.test.js";
import "./cases.test.js";
import "./compiler.test.js";
import "./dim.test.js";
import "./graph.test.js";
import "./memory.test.js";
import "./language.test.js";
import "./mutation.test.js";
import "./react.test.js";
import "./serve.test.js";
import "./session.test.js";
import "./values.test.js";
