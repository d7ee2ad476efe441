// The model, in a thread of its own. The files *.bin are gzip files, under a name that no server unpacks.
//
// In:  { job, tokens, context }: strings, and how many of the words before a word the model may see.
// Out: { problem }, or { job, place, answers, isDone } for the words from number `place` on; the answer after the last
// word is about what comes next.

const ROWS = 64; // of log-probabilities at a time
const ALTERNATIVES = 10;

let latest = 0; // job
let ort = null; // ONNX Runtime
let words = []; // by id
const ids = new Map(); // by word

const loading = load();
loading.catch(report);

onmessage = async ({ data: { job, tokens, context } }) => {
  latest = job;
  try {
    await read(await loading, job, tokens.map(idOf), context);
  } catch (error) {
    report(error);
  }
};

function report(error) {
  postMessage({ problem: String(error?.message ?? error) }); // the runtime throws numbers, too
}

async function load() {
  const files = ["runtime.bin", "model.bin", "words.bin"].map(unpack);
  const program = import("./ort.js").catch(() => Promise.reject(new Error("ort.js is missing")));
  const [runtime, model, list, module] = await Promise.all([...files, program]);
  ort = module;
  words = new TextDecoder().decode(list).trimEnd().split("\n");
  words.forEach((word, id) => ids.set(word, id));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: new URL("glue.js", import.meta.url).href };
  ort.env.wasm.wasmBinary = runtime;
  // Optimizing the graph takes a third of a second, and makes no answer faster.
  return ort.InferenceSession.create(model, { executionProviders: ["wasm"], graphOptimizationLevel: "disabled" });
}

async function unpack(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name} is missing`);
  const unpacked = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).arrayBuffer();
}

function idOf(token) {
  return ids.get(token) ?? ids.get("<unk>");
}

/** Posts the answers for the words of a text, which begins a line, unless another job has come. */
async function read(session, job, tokens, context) {
  const text = [ids.get("</s>"), ...tokens];
  const whole = Math.min(tokens.length, context) + 1; // these words see no more than they may
  const say = (place, rows) => {
    const answers = rows.map((row, number) => answer(row, tokens[place + number]));
    postMessage({ job, place, answers, isDone: place + rows.length > tokens.length });
  };
  if (job !== latest) return;
  say(0, await logProbs(session, [text.slice(0, whole)], whole));
  const most = Math.max(1, Math.floor(ROWS / context));
  for (let place = whole; place < text.length; place += most) {
    await new Promise((resolve) => setTimeout(resolve)); // for messages
    if (job !== latest) return;
    const ends = Array.from({ length: Math.min(most, text.length - place) }, (_, number) => place + number + 1);
    say(place, await logProbs(session, ends.map((end) => text.slice(end - context, end)), 1));
  }
}

/** Returns the log-probabilities of what follows the last `count` ids of each row, as one list of arrays. */
async function logProbs(session, rows, count) {
  const shape = [rows.length, rows[0].length];
  const input = new ort.Tensor("int64", BigInt64Array.from(rows.flat(), BigInt), shape);
  const { log_probs: output } = await session.run({ token_ids: input });
  const size = words.length;
  const places = rows.flatMap((_, row) => Array.from({ length: count }, (_, place) => (row + 1) * shape[1] - count + place));
  return places.map((place) => output.data.subarray(place * size, (place + 1) * size));
}

/** Returns what the model says about a word, `undefined` for the one after the text. <unk> is no alternative. */
function answer(row, id) {
  const unknown = ids.get("<unk>");
  const best = []; // pairs of an id and a log-probability, the most probable first
  let rank = 1;
  for (let other = 0; other < row.length; other++) {
    const value = row[other];
    if (value > row[id]) rank++;
    if (other === unknown || (best.length === ALTERNATIVES && value <= best.at(-1)[1])) continue;
    if (best.length === ALTERNATIVES) best.pop();
    const place = best.findIndex(([, smaller]) => smaller < value);
    best.splice(place < 0 ? best.length : place, 0, [other, value]);
  }
  const alternatives = best.map(([other, value]) => [words[other], Math.exp(value)]);
  return id === undefined ? { alternatives } : { alternatives, rank, logProb: row[id], isUnknown: id === unknown };
}
