// Neighbors: the words nearest to others, and to any string for runs that read words by their bytes.

import { Job, ask } from "./api.js";
import { fixed, make } from "./dom.js";
import { takeAway } from "./take.js";
import { shown } from "./tokens.js";

export function neighborsView(page, section) {
  const form = section.querySelector("form");
  const result = section.querySelector(".result");
  const job = new Job(form.querySelector(".status"), result);

  async function find() {
    const words = form.words.value.split(/\s+/).filter(Boolean);
    const body = { run: page.run().name, words, k: form.k.valueAsNumber };
    await job.run("Searching …", async (signal) => {
      const reply = await ask("api/neighbors", body, signal);
      const run = await page.readRun();
      result.querySelector(".columns").replaceChildren(...reply.neighbors.map((one) => column(one, run)));
      const rows = reply.neighbors.flatMap(({ word, nearest }) => nearest.map((pair) => [word, ...pair]));
      const table = [["word", "neighbor", "cosine"], ...rows];
      takeAway(result.querySelector(".take"), page.link("neighbors", form), { ...body, ...reply }, table);
      result.hidden = false;
    });
  }

  page.onSubmit(form, find);
  return {
    form,
    runChanged() {
      job.stop();
      result.hidden = true;
    },
  };
}

function column({ word, known, nearest }, run) {
  const rows = nearest.map(([neighbor, cosine]) =>
    make("li", {}, make("bdi", { class: "name" }, shown(neighbor, run.unit)), make("span", { class: "number" }, fixed(cosine, 3))),
  );
  const unknown = run.reads_bytes ? "not in the vocabulary" : "not in the vocabulary: the model has no vector for it";
  return make(
    "div",
    {},
    make("h4", {}, make("bdi", {}, word)),
    make("p", { class: "note" }, known ? "in the vocabulary" : unknown),
    make("ol", { class: "pairs" }, ...rows),
  );
}
