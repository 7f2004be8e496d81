// What markets ask, for rows that only have an id. The market of a row that is nowhere else on the
// page is read without a credential, one a second.

import { readOpen } from "./api.js";
import { update } from "./store.js";

const KNOWN_MAX = 2_000;
const NAMES_GAP_MS = 1_000;

const known = new Map();
const unknown = new Set();
let isReadingNames = false;

/** Remembers the questions of these markets. */
export function learn(markets) {
  for (const { condition_id: id, question } of markets) remember(id, question ?? id);
}

/** Remembers what a market asks. */
export function remember(id, question) {
  known.delete(id);
  known.set(id, question);
  if (known.size > KNOWN_MAX) known.delete(known.keys().next().value);
}

/** What the market asks; until that is known, the beginning of its id. */
export function questionOf(id) {
  const question = known.get(id);
  if (question !== undefined) return question;
  unknown.add(id);
  if (!isReadingNames) readUnknown();
  return `${id.slice(0, 12)}…`;
}

async function readUnknown() {
  isReadingNames = true;
  // Not while the page is drawn, which is when somebody asks.
  for (await null; unknown.size;) {
    const [id] = unknown;
    unknown.delete(id);
    if (known.has(id)) continue;
    try {
      const market = await readOpen(`v1/markets/${encodeURIComponent(id)}`);
      remember(id, market.question ?? id);
      update();
    } catch {
      remember(id, `${id.slice(0, 12)}…`);
    }
    await new Promise((done) => setTimeout(done, NAMES_GAP_MS));
  }
  isReadingNames = false;
}
