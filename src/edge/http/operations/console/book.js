// The book of the chosen outcome. It is read without a credential: when the stream says that a price
// or a book has changed, at most once a second, and else once in a while.

import { readOpen } from "./api.js";
import { previewAgain } from "./preview.js";
import { state, update } from "./store.js";
import { LEVELS } from "./walk.js";

const BOOK_GAP_MS = 1_000;
const IDLE_MS = 10_000;

let isReadingBook = false;
let isBookWanted = false;
let lastBookMs = -Infinity;
let bookTimer = 0;

/** Forgets the book, and reads that of the outcome which is now chosen. */
export function chooseBook() {
  update({ book: null, bookTrouble: "" });
  lastBookMs = -Infinity;
  wantBook();
}

/** The book may have changed. */
export function wantBook() {
  isBookWanted = true;
  clearTimeout(bookTimer);
  if (isReadingBook || document.hidden || !state.market || state.outcome === null) return;
  const waitMs = lastBookMs + BOOK_GAP_MS - performance.now();
  bookTimer = setTimeout(readBook, Math.max(0, waitMs));
}

async function readBook() {
  const { id, outcome } = state;
  isReadingBook = true;
  isBookWanted = false;
  lastBookMs = performance.now();
  let read;
  try {
    const label = encodeURIComponent(outcome);
    const path = `v1/markets/${encodeURIComponent(id)}/book?depth=${LEVELS}&outcome=${label}`;
    read = { book: await readOpen(path), bookTrouble: "" };
  } catch (refusal) {
    // Without an answer, what was there stays.
    read = refusal.status === 404 ? { book: null, bookTrouble: refusal.message } : {};
  }
  isReadingBook = false;
  const isCurrent = id === state.id && outcome === state.outcome;
  if (isCurrent) {
    update(read);
    previewAgain();
  }
  if (isBookWanted || !isCurrent) return wantBook();
  bookTimer = setTimeout(wantBook, IDLE_MS);
}

document.addEventListener("visibilitychange", () => !document.hidden && wantBook());
