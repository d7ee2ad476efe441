// Write: a continuation, word by word, in which any word can be replaced by another candidate.

import { Job, stream } from "./api.js";
import { candidateList } from "./candidates.js";
import { count, fillFacts, fixed, make, percent, perplexity } from "./dom.js";
import { SCALES, legend } from "./scale.js";
import { takeAway } from "./take.js";
import { placed, shown, textOf } from "./tokens.js";
import { Words } from "./words.js";

export function writeView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"));
  const words = new Words(section.querySelector(".reading"), "Continuation", describe);
  let run = null; // that wrote the text
  let prompt = "";
  let items = []; // the words written so far
  section.querySelector(".legend").replaceChildren(...legend(SCALES.bits, null, true));
  form.tokens.max = page.limits.length;
  form.tokens.value = Math.min(form.tokens.value, page.limits.length);

  function start() {
    run = page.run();
    prompt = form.prompt.value;
    items = [];
    words.clear();
    section.querySelector(".facts").replaceChildren();
    section.querySelector(".take").replaceChildren();
    if (prompt) words.lead(prompt);
    result.hidden = false;
    return write();
  }

  /** Writes on, after the words so far. */
  async function write() {
    show(true);
    const body = {
      run: run.name,
      prompt,
      prefix: items.map((item) => item.token),
      length: form.tokens.valueAsNumber,
      temperature: form.temperature.valueAsNumber,
      top_k: number(form.top_k),
      top_p: number(form.top_p),
      seed: number(form.seed),
      alternatives: 10,
    };
    const [before, start] = [items.length, performance.now()];
    await job.run("Writing …", async (signal) => {
      for await (const item of stream("api/generate", body, signal)) {
        if (item.end) break;
        if (!items.length) run = await page.readRun();
        add(item);
        showFigures((1000 * (items.length - before)) / (performance.now() - start));
      }
    });
    if (job.controller) return; // another text is being written
    show(false);
    result.hidden = !items.length;
    const rows = items.map((item, place) => [place + 1, item.token, bitsOf(item), Boolean(item.isChosen)]);
    const table = [["position", "token", "bits", "chosen"], ...rows];
    takeAway(section.querySelector(".take"), page.link("write", form), { run: run.name, prompt, tokens: items }, table);
  }

  /** Shows the figures of the text so far, and the words per second of the last request. */
  function showFigures(speed) {
    const noun = run.unit === "word" ? "word" : "token";
    const bits = items.reduce((sum, item) => sum + bitsOf(item), 0) / items.length;
    fillFacts(section.querySelector(".facts"), [
      [`Perplexity per ${noun}`, perplexity(2 ** bits)],
      [`${noun === "word" ? "Words" : "Tokens"} written`, count(items.length)],
      [`${noun === "word" ? "Words" : "Tokens"} per second`, fixed(speed, speed < 10 ? 1 : 0)],
    ]);
  }

  function show(isWriting) {
    form.stop.hidden = !isWriting;
    form.more.hidden = isWriting || !items.length;
  }

  function stop() {
    job.stop();
    show(false);
  }

  function add(item) {
    const bits = bitsOf(item);
    const color = item.token === "<unk>" ? "unknown" : SCALES.bits.className({ bits });
    const word = words.add(
      {
        ...placed(item.token, item.text, run.unit),
        className: color + (item.isChosen ? " chosen" : ""),
        note: `probability ${percent(item.probability)}${item.isChosen ? ", chosen by you" : ""}`,
        number: fixed(bits, 1),
      },
      item,
    );
    items.push(item);
    if (item.token === "</s>") words.newLine();
    return word;
  }

  /** Puts a candidate in the place of a word, removes what follows and writes on from there. */
  function choose(item, candidate) {
    job.stop();
    const place = items.indexOf(item);
    words.truncate(place);
    items = items.slice(0, place);
    const text = textOf(candidate.token, run.unit);
    const { probability, token } = candidate;
    words.focus(add({ token, text, probability, alternatives: item.alternatives, isChosen: true }));
    words.close();
    return write();
  }

  function describe(item) {
    const candidates = (item.alternatives ?? []).map(([token, probability]) => ({
      token,
      text: shown(token, run.unit),
      probability,
      isThis: token === item.token,
    }));
    const note = `Probability ${percent(item.probability)}, ${fixed(bitsOf(item), 1)} bits`;
    return [
      make("p", { class: "subject" }, make("bdi", {}, shown(item.token, run.unit))),
      make("p", { class: "note" }, note),
      make("h4", {}, "Continue with"),
      candidateList(candidates, (candidate) => choose(item, candidate)),
    ];
  }

  page.onSubmit(form, start);
  form.more.addEventListener("click", write);
  form.stop.addEventListener("click", stop);
  return {
    form,
    hide() {
      words.close();
    },
    runChanged() {
      stop();
      form.more.hidden = true;
    },
  };
}

function number(input) {
  return input.value === "" ? null : input.valueAsNumber;
}

function bitsOf(item) {
  return -Math.log2(item.probability);
}
