// Loads our wheel into Pyodide, runs steps.py there, and prints what it reports as one line of JSON:
//   node pyodide_steps.mjs CHECKOUT WHEEL
import { readFile } from "node:fs/promises";
import { loadPyodide } from "pyodide";

const [checkout, wheel] = process.argv.slice(2);
// The modules beside the wheel; all of pie_edge must come from the wheel itself.
const modules = ["benchmarks/__init__.py", "benchmarks/null_backend.py", "tests/__init__.py", "tests/web/__init__.py", "tests/web/steps.py"];

const told = (text) => console.error(text);
const python = await loadPyodide({ stdout: told, stderr: told });
await python.loadPackage(wheel, { messageCallback: told, errorCallback: told });
for (const name of modules) {
  const target = `/checkout/${name}`;
  python.FS.mkdirTree(target.slice(0, target.lastIndexOf("/")));
  python.FS.writeFile(target, await readFile(`${checkout}/${name}`));
}

const report = await python.runPythonAsync(`
import importlib.util, json, sys, threading
sys.path.insert(0, "/checkout")
import pie_edge
from tests.web.steps import report

def starts_threads():
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True

json.dumps(await report() | {
    "python": sys.version.split()[0],
    "platform": sys.platform,
    "package": pie_edge.__file__,
    "numpy": importlib.util.find_spec("numpy") is not None,
    "wasmtime": importlib.util.find_spec("wasmtime") is not None,
    "threads": starts_threads(),
})
`);
console.log(report);
