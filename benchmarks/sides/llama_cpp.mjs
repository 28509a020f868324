// llama.cpp through node-llama-cpp, whose packages carry it built, for CPUs and for Vulkan. Run as
//
//     node llama_cpp.mjs MODEL THREADS cpu|vulkan [PROMPT]
//
// it speaks the protocol of benchmarks/worker.py, or with a PROMPT prints the first token and ends.
import {createInterface} from "node:readline";

const CONTEXT = 4096, BATCH = 512, SEQUENCES = 16;
const [path, threads, kind, clockOrPrompt] = process.argv.slice(2);
const prompt = ["cpu", "wall"].includes(clockOrPrompt) ? undefined : clockOrPrompt;
const GREEDY = {temperature: 0, yieldEogTokens: true};

let library;
try {
    library = await import("node-llama-cpp");
} catch (error) {
    const missing = `${error.message}; npm install --prefix benchmarks --no-save --ignore-scripts node-llama-cpp`;
    if (prompt === undefined) tell({missing, memory: 0});
    // Nothing on the output then: a line there would be timed as the first token.
    else process.stderr.write(missing + "\n");
    process.exit(prompt === undefined ? 0 : 1);
}
const {getLlama, LlamaLogLevel} = library;
const llama = await getLlama({
    gpu: kind === "vulkan" ? "vulkan" : false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error,
    maxThreads: Number(threads)
});
const model = await llama.loadModel({modelPath: path, gpuLayers: kind === "vulkan" ? "max" : 0});
const context = await model.createContext({
    sequences: SEQUENCES, contextSize: CONTEXT / SEQUENCES * 4, batchSize: BATCH, threads: Number(threads)
});
const sequences = Array.from({length: SEQUENCES}, () => context.getSequence());
const clock = clockOrPrompt === "cpu"
    ? () => { const {user, system} = process.cpuUsage(); return (user + system) / 1e6; }
    : () => performance.now() / 1e3;

function tell(answer) {
    process.stdout.write(JSON.stringify(answer) + "\n");
}

// So many tokens after these; when the first of them was there.
async function generate(sequence, ids, count) {
    let first = 0, found = 0;
    for await (const token of sequence.evaluate(ids, GREEDY)) {
        if (found++ === 0) first = clock();
        if (found === count) break;
    }
    return first;
}

const WORKLOADS = {
    async decode({prompt, count}) {
        const first = await generate(sequences[0], prompt, count + 1);
        return count / (clock() - first);
    },
    async prefill({prompt}) {
        const start = clock();
        await generate(sequences[0], prompt, 1);
        return prompt.length / (clock() - start);
    },
    async streams({prompts, count}) {
        const start = clock();
        await Promise.all(prompts.map((prompt, i) => generate(sequences[i], prompt, count)));
        return prompts.length * count / (clock() - start);
    }
};

if (prompt !== undefined) {
    for await (const token of sequences[0].evaluate(model.tokenize(prompt), GREEDY)) {
        process.stdout.write(model.detokenize([token]) || ".");
        break;
    }
    process.exit(0);
}
tell({description: `llama.cpp of node-llama-cpp, ${kind} (${(await llama.getGpuDeviceNames())[0] ?? "CPU"})`, memory: process.memoryUsage().rss});
for await (const line of createInterface({input: process.stdin})) {
    const {workload, ...given} = JSON.parse(line);
    for (const sequence of sequences) await sequence.clearHistory();
    const value = await WORKLOADS[workload](given);
    tell({value, memory: process.memoryUsage().rss});
}
process.exit(0);
