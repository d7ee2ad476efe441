// Neighbors: the words nearest to any string, for runs that read words by their bytes.

import { Job, ask } from "./api.js";
import { fixed, make } from "./dom.js";

export function neighborsView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"));
  const button = form.querySelector("[type=submit]");

  async function find() {
    const words = form.words.value.split(/\s+/).filter(Boolean);
    const body = { run: page.run().name, words, k: form.k.valueAsNumber };
    await job.run("Searching …", async (signal) => {
      const reply = await ask("api/neighbors", body, signal);
      result.replaceChildren(...reply.neighbors.map(column));
      result.hidden = false;
    });
  }

  async function check() {
    result.hidden = true;
    await job.run("", async () => {
      const run = await page.readRun();
      button.disabled = !run.neighbors;
      if (!run.unit) throw new Error(`${run.name} trains and has no model yet.`);
      if (!run.neighbors) {
        throw new Error(`${run.name} has vectors for the words of its vocabulary alone. Choose a run of --input=char_cnn.`);
      }
    });
  }

  page.onSubmit(form, find);
  return { show: check, runChanged: check };
}

function column({ word, known, nearest }) {
  const rows = nearest.map(([neighbor, cosine]) =>
    make("li", {}, make("bdi", { class: "name" }, neighbor), make("span", { class: "number" }, fixed(cosine, 3))),
  );
  return make(
    "div",
    {},
    make("h4", {}, make("bdi", {}, word)),
    make("p", { class: "note" }, known ? "in the vocabulary" : "not in the vocabulary"),
    make("ol", { class: "pairs" }, ...rows),
  );
}
