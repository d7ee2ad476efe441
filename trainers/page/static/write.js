// Write: a continuation, word by word, in which any word can be replaced by another candidate.

import { Job, stream } from "./api.js";
import { candidateList } from "./candidates.js";
import { fixed, make, percent } from "./dom.js";
import { surprisalClass, surprisalLegend } from "./scale.js";
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
  section.querySelector(".legend").replaceChildren(...surprisalLegend());
  form.tokens.max = page.limits.length;
  form.tokens.value = Math.min(form.tokens.value, page.limits.length);

  function start() {
    run = page.run();
    prompt = form.prompt.value;
    items = [];
    words.clear();
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
    await job.run("Writing …", async (signal) => {
      for await (const item of stream("api/generate", body, signal)) {
        if (item.end) break;
        if (!items.length) run = await page.readRun();
        add(item);
      }
    });
    if (!job.controller) show(false);
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
    const bits = -Math.log2(item.probability);
    const word = words.add(
      {
        ...placed(item.token, item.text, run.unit),
        className: surprisalClass(bits) + (item.isChosen ? " chosen" : ""),
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
    const note = `Probability ${percent(item.probability)}, ${fixed(-Math.log2(item.probability), 1)} bits`;
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
