// Tokens as people read them.

const SIGNS = new Map([
  ["</s>", "↵"],
  ["<s>", "⇤"],
]);

const bytes = new Map(); // from GPT-2's symbols, with which sub-words and bytes are written
for (let byte = 0, next = 256; byte < 256; byte++) {
  const isVisible = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0xad) || byte > 0xad;
  bytes.set(String.fromCodePoint(isVisible ? byte : next++), byte);
}

/** Returns the text of a token in a continuation, with the space before it. */
export function textOf(token, unit) {
  if (token === "</s>") return "\n";
  if (unit === "word" || isSpecial(token)) return ` ${token}`;
  if (unit === "character") return token;
  const symbols = [...token].map((symbol) => bytes.get(symbol));
  return symbols.includes(undefined) ? token : new TextDecoder().decode(new Uint8Array(symbols));
}

/** Returns a token as a list shows it: white space is visible. */
export function shown(token, unit) {
  if (SIGNS.has(token)) return SIGNS.get(token);
  if (unit === "word" || isSpecial(token)) return token;
  return textOf(token, unit).replace(/^\s|\s$/g, "␣").replace(/[\n\r]/g, "↵");
}

/** Returns `{ before, text }`: the white space before a token of a passage, and what is colored. */
export function placed(token, piece, unit) {
  if (SIGNS.has(token)) return { before: " ", text: SIGNS.get(token) };
  const text = piece.trimStart();
  const before = piece.slice(0, piece.length - text.length);
  if (!text) return { before: "", text: before ? "␣" : shown(token, unit) };
  return { before: before || (unit === "word" ? " " : ""), text };
}

function isSpecial(token) {
  return ["<s>", "<pad>", "</s>", "<unk>"].includes(token);
}
