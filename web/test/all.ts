// Every test that runs under Node: node --test dist/test/all.js
import "./cases.test.js";
import "./dim.test.js";
import "./mutation.test.js";
import "./session.test.js";
import "./values.test.js";
