// A page that needs neither the compiler nor language models: a bundler must leave both out.
import { openDevice } from "jerboa";

document.title = (await openDevice()).label;
