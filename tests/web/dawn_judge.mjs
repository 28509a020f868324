// node dawn_judge.mjs SHADERS.json: what Tint says of them on Dawn's null device, which has every feature and runs nothing.
import { readFileSync } from "node:fs";
import { create, globals } from "webgpu";
import { judged } from "./judge.mjs";

Object.assign(globalThis, globals);
const shaders = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const found = await judged(create(["backend=null"]), shaders);
process.stdout.write(JSON.stringify(found), () => process.exit(0));
