// The server's JSON API.

/** Returns the JSON of a path; `body` is posted. Throws an error that says what the server says. */
export async function ask(path, body, signal) {
  return (await request(path, body, signal)).json();
}

/** Yields the objects of an answer that holds one in each line, as they arrive. */
export async function* stream(path, body, signal) {
  const response = await request(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) {
      if (!line.trim()) continue;
      const item = JSON.parse(line);
      if (item.error) throw new Error(item.error);
      yield item;
    }
    if (done) return;
  }
}

async function request(path, body, signal) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, { signal, ...(body === undefined ? {} : post) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Start trainers.serve again.");
  }
  if (!response.ok) throw new Error(await problem(response));
  return response;
}

async function problem(response) {
  try {
    return (await response.json()).error ?? `The server answered ${response.status}.`;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

/**
 * One request at a time for a form: a new one cancels the previous one.
 *
 * What goes wrong is shown in `status`, in place of `results`, which are elements.
 */
export class Job {
  constructor(status, ...results) {
    this.status = status;
    this.results = results;
    this.controller = null;
  }

  /** Runs `task(signal)`. Returns whether it ran to its end. */
  async run(message, task) {
    this.stop();
    const controller = (this.controller = new AbortController());
    const isLatest = () => this.controller === controller;
    this.say(message);
    try {
      await task(controller.signal);
      if (isLatest()) this.say("");
      return isLatest();
    } catch (error) {
      if (isLatest() && error.name !== "AbortError") this.fail(error.message);
      return false;
    } finally {
      if (isLatest()) this.controller = null;
    }
  }

  stop() {
    this.controller?.abort();
    this.controller = null;
    this.say("");
  }

  fail(message) {
    for (const result of this.results) result.hidden = true;
    this.say(message, true);
  }

  say(message, isError = false) {
    this.status.textContent = message;
    this.status.classList.toggle("error", isError);
  }
}
