// Learn: the learning curve of a run, its loss by word frequency, its parameters and flags.

import { Job, ask } from "./api.js";
import { bars, curves, keepDrawn, rangeName } from "./charts.js";
import { count, fillFacts, make, perplexity } from "./dom.js";

const AGAIN = 3000; // milliseconds between two looks at a run that trains

export function learnView(page, section) {
  const result = section.querySelector(".result");
  const job = new Job(section.querySelector(".status"), result);
  let isShown = false;
  let timer = null;
  let log = new Map(); // the lines of the log so far; a validation has the number of the update before it

  async function look(isNew) {
    clearTimeout(timer);
    const run = page.run();
    if (isNew) {
      log = new Map();
      result.hidden = true;
    }
    let training = false;
    const after = Math.max(0, ...[...log.values()].map((line) => line.update));
    const path = `api/runs/${encodeURIComponent(run.name)}/learning?after=${after}`;
    const isDone = await job.run(isNew ? "Loading …" : "", async (signal) => {
      const reply = await ask(path, undefined, signal);
      training = reply.training;
      const before = log.size;
      for (const line of reply.curve) log.set(`${"val_loss" in line} ${line.update}`, line);
      show(run, reply, isNew, log.size > before);
    });
    if (isDone && training && isShown) timer = setTimeout(() => look(false), AGAIN);
  }

  function show(run, reply, isNew, hasNews) {
    const lines = [...log.values()].sort((one, other) => one.update - other.update);
    const valid = values(lines, "val_loss");
    const last = lines.at(-1);
    const best = Math.min(...valid.map(([, loss]) => loss));
    const facts = [["State", reply.training ? "training" : "finished"]];
    if (last) facts.push(["Updates", count(last.update)]);
    if (valid.length) facts.push(["Best validation perplexity", perplexity(Math.exp(best))]);
    if (last?.tokens) facts.push(["Tokens read", count(last.tokens)]);
    if (run.unit) {
      facts.push(["Vocabulary", `${count(run.vocabulary_size)} ${run.unit === "word" ? "words" : "tokens"}`]);
      facts.push(["Parameters", count(run.parameters)]);
      facts.push(["Input", run.input], ["Body", run.body], ["Output", run.output]);
    }
    fillFacts(section.querySelector(".facts"), facts);
    section.querySelector(".facts dd").classList.toggle("live", reply.training);
    if (isNew || hasNews) {
      showCurve(values(lines, "loss"), valid);
      showFrequency(reply.frequency);
      showParameters(reply.parameters);
    }
    if (isNew) fillFacts(section.querySelector("#learn-flags"), Object.entries(reply.flags).sort());
    result.hidden = false;
  }

  function showCurve(training, valid) {
    const series = [
      { name: "training", points: training },
      { name: "validation", points: valid, marked: true },
    ].filter((one) => one.points.length);
    const host = section.querySelector("#learn-curve");
    if (!series.length) {
      keepDrawn(host, () => [make("p", { class: "note" }, "The log of this run holds no losses.")]);
      return;
    }
    keepDrawn(host, (width) => curves(series, { title: "Loss over updates, training and validation", width }));
  }

  function showFrequency(ranges) {
    section.querySelector("#learn-frequency-part").hidden = !ranges.length;
    const groups = ranges.map((range) => ({
      label: rangeName(range.from, range.to),
      values: [range.bits],
      note: count(range.words),
    }));
    const options = { names: ["bits"], title: "Mean bits per token by the frequency of the token" };
    keepDrawn(section.querySelector("#learn-frequency"), (width) => bars(groups, { ...options, width }));
  }

  function showParameters(parts) {
    const groups = Object.entries(parts).map(([name, number]) => ({ label: name.replaceAll("_", " "), values: [number] }));
    section.querySelector("#learn-parameters-part").hidden = !groups.length;
    const options = { names: ["parameters"], title: "Parameters by part", large: true };
    keepDrawn(section.querySelector("#learn-parameters"), (width) => bars(groups, { ...options, width }));
  }

  return {
    show() {
      isShown = true;
      look(true);
    },
    hide() {
      isShown = false;
      clearTimeout(timer);
      job.stop();
    },
    runChanged() {
      if (isShown) look(true);
    },
  };
}

function values(lines, name) {
  return lines.filter((line) => Number.isFinite(line[name])).map((line) => [line.update, line[name]]);
}
