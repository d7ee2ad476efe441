// The page: its runs, its five views and its theme.

import { ask } from "./api.js";
import { compareView } from "./compare.js";
import { fillRuns } from "./dom.js";
import { learnView } from "./learn.js";
import { neighborsView } from "./neighbors.js";
import { readView } from "./read.js";
import { keep, kept } from "./storage.js";
import { writeView } from "./write.js";

const VIEWS = { read: readView, compare: compareView, write: writeView, learn: learnView, neighbors: neighborsView };
const SAMPLE =
  "The old man looked out over the sea . He had waited for many years , and in all that time no ship had come back " +
  "to the harbour . In the evening he went home and wrote a letter to his sister .";

const PROMPT = 6; // words of the text with which writing begins
const STRINGS = 3; // words whose neighbors are sought at first

const select = document.querySelector("#run");
const texts = []; // the text areas that hold the text to read
const views = {};

const page = {
  runs: [],
  limits: {},
  run: () => page.runs.find((run) => run.name === select.value),

  /** Returns a run, by default the chosen one, once its model is read: a run that trains has none at first, and no unit. */
  async readRun(name = select.value) {
    const find = () => page.runs.find((run) => run.name === name);
    if (!find().unit) page.runs = (await ask("api/runs")).runs;
    return find();
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
    texts.push(area);
    area.addEventListener("input", () => setText(area.value));
  },

  /** Returns the address of a view with its fields as they are. */
  link: (name, form) => `#${name}?${new URLSearchParams({ run: select.value, ...fieldsOf(form) })}`,
};

function setText(text) {
  for (const area of texts) if (area.value !== text) area.value = text;
}

/** Returns a text that is like the run's training text, with words that the run knows if its corpus is at hand. */
function exampleOf(run) {
  return run.example ?? (run.unit === "word" ? SAMPLE : SAMPLE.replace(/ ([.,])/g, "$1"));
}

/** Fills the fields that still hold the example of another run, or nothing yet. */
function fillExamples(run, before) {
  const [old, example] = [before && exampleOf(before), exampleOf(run)];
  const [prompt, strings] = [views.write.form.prompt, views.neighbors.form.words];
  if (texts[0].value === (old ?? "")) setText(example);
  if (prompt.value === promptOf(old)) prompt.value = promptOf(example);
  if (strings.value === stringsOf(old)) strings.value = stringsOf(example);
}

function promptOf(text) {
  return text?.split(/\s+/).slice(0, PROMPT).join(" ") ?? "";
}

function stringsOf(text) {
  const words = [...new Set(text?.match(/\p{L}{4,}/gu))];
  return words.slice(0, STRINGS).join(" ");
}

/** Returns the fields of a form by name. */
function fieldsOf(form) {
  const named = [...form.elements].filter((field) => field.name && field.type !== "submit" && field.type !== "button");
  return Object.fromEntries(named.map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]));
}

/** Fills the fields of a view, and the run, with what a link or the storage holds; unknown names are left out. */
function fill(name, fields) {
  const { form, filled } = views[name];
  for (const field of form?.elements ?? []) {
    if (!Object.hasOwn(fields, field.name) || field.type === "submit" || field.type === "button") continue;
    const [before, value] = [field.value, String(fields[field.name])];
    if (field.type === "checkbox") field.checked = value === "true";
    else field.value = value;
    if (value && !field.value) field.value = before; // it is no choice of a list, or no number
    filled?.();
  }
  if (texts.includes(form?.text)) setText(form.text.value);
}

/** Returns what the address says: `{ name, fields }`, a view and the fields of a link, or `null`. */
function parse() {
  const [name, ...rest] = location.hash.slice(1).split("?");
  return { name, fields: rest.length ? Object.fromEntries(new URLSearchParams(rest.join("?"))) : null };
}

async function start() {
  const { runs, limits } = await ask("api/runs");
  if (!runs.length) throw new Error("The server serves no run. Start trainers.serve with --run_dir.");
  Object.assign(page, { runs, limits });
  fillRuns(select, runs, runs[0].name);
  for (const [name, view] of Object.entries(VIEWS)) views[name] = view(page, document.getElementById(name));
  fillExamples(page.run(), null);
  const stored = kept();
  if (runs.some((run) => run.name === stored.run)) select.value = stored.run;
  for (const name of Object.keys(views)) fill(name, stored[name] ?? {});
  let before = page.run();
  select.addEventListener("change", () => {
    fillExamples(page.run(), before);
    before = page.run();
    for (const view of Object.values(views)) view.runChanged?.();
  });
  let current = null;
  const save = () => {
    const forms = Object.entries(views).flatMap(([name, { form }]) => (form ? [[name, fieldsOf(form)]] : []));
    keep({ run: select.value, ...Object.fromEntries(forms) });
    if (parse().fields) history.replaceState(null, "", `#${current}`); // the link is to another text
  };
  for (const type of ["input", "change"]) document.addEventListener(type, save);
  const route = () => {
    const { name: asked, fields } = parse();
    const name = Object.hasOwn(views, asked) ? asked : (current ?? "read");
    if (name === current && !fields) return;
    if (name !== current) {
      views[current]?.hide?.();
      current = name;
      for (const other of Object.keys(views)) document.getElementById(other).hidden = other !== name;
      for (const link of document.querySelectorAll("nav a")) {
        if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      select.disabled = name === "compare";
    }
    if (!fields) return views[name].show?.();
    if (runs.some((run) => run.name === fields.run)) select.value = fields.run;
    before = page.run();
    fill(name, fields);
    if (views[name].form) views[name].form.requestSubmit();
    else views[name].show?.();
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
