// The book of the chosen outcome. It is read without a credential: when the stream says that a price
// or a book has changed, at most once a second, and else once in a while.

import * as api from "./api.js";
import { previewAgain } from "./preview.js";
import { state, update } from "./store.js";
import { LEVELS } from "./walk.js";

const GAP_MS = 1_000;
const IDLE_MS = 10_000;

let isReading = false;
let isWanted = false;
let lastMs = -Infinity;
let timer = 0;

/** Forgets the book, and reads that of the outcome which is now chosen. */
export function chooseBook() {
  update({ book: null, bookTrouble: "" });
  lastMs = -Infinity;
  wantBook();
}

/** The book may have changed. */
export function wantBook() {
  isWanted = true;
  clearTimeout(timer);
  if (isReading || document.hidden || !state.market || state.outcome === null) return;
  const waitMs = lastMs + GAP_MS - performance.now();
  timer = setTimeout(read, Math.max(0, waitMs));
}

async function read() {
  const { id, outcome } = state;
  isReading = true;
  isWanted = false;
  lastMs = performance.now();
  let read;
  try {
    const label = encodeURIComponent(outcome);
    const path = `v1/markets/${encodeURIComponent(id)}/book?depth=${LEVELS}&outcome=${label}`;
    read = { book: await api.open(path), bookTrouble: "" };
  } catch (refusal) {
    // Without an answer, what was there stays.
    read = refusal.status === 404 ? { book: null, bookTrouble: refusal.message } : {};
  }
  isReading = false;
  const isCurrent = id === state.id && outcome === state.outcome;
  if (isCurrent) {
    update(read);
    previewAgain();
  }
  if (isWanted || !isCurrent) return wantBook();
  timer = setTimeout(wantBook, IDLE_MS);
}

document.addEventListener("visibilitychange", () => !document.hidden && wantBook());
