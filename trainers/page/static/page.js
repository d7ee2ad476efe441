// The page: its runs, its five views and its theme.

import { ask } from "./api.js";
import { compareView } from "./compare.js";
import { fillRuns } from "./dom.js";
import { learnView } from "./learn.js";
import { neighborsView } from "./neighbors.js";
import { readView } from "./read.js";
import { writeView } from "./write.js";

const VIEWS = { read: readView, compare: compareView, write: writeView, learn: learnView, neighbors: neighborsView };
const SAMPLE =
  "The old man looked out over the sea . He had waited for many years , and in all that time no ship had come back " +
  "to the harbour . In the evening he went home and wrote a letter to his sister .";

const select = document.querySelector("#run");
const texts = []; // the text areas that hold the text to read

const page = {
  runs: [],
  limits: {},
  run: () => page.runs.find((run) => run.name === select.value),

  /** Returns the chosen run once its model is read: a run that trains has none at first, and no unit. */
  async readRun() {
    if (!page.run().unit) page.runs = (await ask("api/runs")).runs;
    return page.run();
  },

  /** Calls `task` when a form is sent, also by Ctrl+Enter in a text area. */
  onSubmit(form, task) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      task();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  },

  /** Makes the text the same in all of these text areas. */
  shareText(area) {
    area.maxLength = page.limits.characters;
    texts.push(area);
    area.addEventListener("input", () => setText(area.value));
  },
};

function setText(text) {
  for (const area of texts) if (area.value !== text) area.value = text;
}

/** Returns the sample text as the run's training text was written: only words have spaces before the marks. */
function sample(unit) {
  return unit === "word" ? SAMPLE : SAMPLE.replace(/ ([.,])/g, "$1");
}

async function start() {
  const { runs, limits } = await ask("api/runs");
  if (!runs.length) throw new Error("The server serves no run. Start trainers.serve with --run_dir.");
  Object.assign(page, { runs, limits });
  fillRuns(select, runs, runs[0].name);
  const views = {};
  for (const [name, view] of Object.entries(VIEWS)) views[name] = view(page, document.getElementById(name));
  setText(sample(page.run().unit));
  select.addEventListener("change", () => {
    if ([sample("word"), sample("character")].includes(texts[0].value)) setText(sample(page.run().unit));
    for (const view of Object.values(views)) view.runChanged?.();
  });
  let current = null;
  const route = () => {
    const hash = location.hash.slice(1);
    const name = Object.hasOwn(views, hash) ? hash : (current ?? "read");
    if (name === current) return;
    views[current]?.hide?.();
    current = name;
    for (const other of Object.keys(views)) document.getElementById(other).hidden = other !== name;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    select.disabled = name === "compare";
    views[name].show?.();
  };
  window.addEventListener("hashchange", route);
  route();
}

function setUpTheme() {
  const button = document.querySelector("#theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    label();
  });
  system.addEventListener("change", label);
  label();
}

setUpTheme();
start().catch((error) => {
  const problem = document.querySelector("#problem");
  problem.textContent = error.message;
  problem.hidden = false;
});
