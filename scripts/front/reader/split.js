// The words of a text as people type it, as in the books that the model read: there, spaces separate words and marks.

// As keras_adaptive.data.tokenize, without its rules for scripts and emoji that the books do not have.
const WORD = /\n|\d+(?:[.,]\d+)+|[\p{L}\p{M}\p{N}_]+(?:['’][\p{L}\p{M}\p{N}_]+)*|([^\p{L}\p{M}\p{N}_\s])\1*/gu;
const PLAIN = { "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "—": "--", "–": "--", "…": "..." }; // the books are plain
const CLOSING = /^(?:[.,;:!?)\]]+|\.\.\.)$/;

/** Returns `[{ token, start, end }]`: the tokens of a text, `</s>` for the end of a line, and their places. */
export function split(text) {
  return [...text.matchAll(WORD)].map(({ 0: word, index }) => ({
    token: word === "\n" ? "</s>" : word.replace(/[“”„‘’—–…]/g, (mark) => PLAIN[mark]),
    start: index,
    end: index + word.length,
  }));
}

/** Returns `[start, string]`: what to write between two parts of a text for a token to stand there, and from where on. */
export function placed(before, token, after) {
  const start = before.replace(/ +$/, "").length;
  const isQuoting = before.split('"').length % 2 === 0;
  const isTight =
    token === "</s>" ||
    CLOSING.test(token) ||
    (token === '"' && isQuoting) ||
    (start === before.length && (/(^|[\n([-])$/.test(before) || (before.endsWith('"') && isQuoting)));
  const space = /^[\p{L}\p{N}]/u.test(after) ? " " : "";
  return [start, (isTight ? "" : " ") + (token === "</s>" ? "\n" : token) + space];
}
