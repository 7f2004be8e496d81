// Requests. A key goes into the header X-API-Key, and into the storage of this tab, and nowhere else.
//
// What carries the key goes out one at a time, more than a second apart, so that the console leaves
// at least four requests a second of the smallest tier to the bots that share the key. What people
// ask for overtakes what the console reads by itself, and a hidden tab reads nothing.

const KEY_ITEM = "paperbourse-key";

// A little over a second: requests that leave a second apart may arrive closer together.
const OWN_GAP_MS = 1_100;
const READ_MS_MAX = 15_000;
// The venue may hold an order for ten seconds before it is answered.
const WRITE_MS_MAX = 30_000;

/** Why a request did not succeed. Without a status, no answer came. */
export class Refusal extends Error {
  constructor(message, { code = "", status = 0 } = {}) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

let key = "";
let limits = null;
const waiting = [];
let pumpTimer = 0;
let lastOwnMs = -Infinity;
let pausedUntilMs = 0;
let openPausedUntilMs = 0;

/** The key that this tab keeps; empty if it has none. */
export const keptKey = () => sessionStorage.getItem(KEY_ITEM) ?? "";

/** What is left of the key's minute, and of how many: as text, or null. */
export const limitsLeft = () => limits;

/** Takes this key from now on. */
export function useKey(text) {
  drop();
  key = text;
}

/** Keeps the key until the tab is closed. */
export function keepKey() {
  sessionStorage.setItem(KEY_ITEM, key);
}

/** Takes no key, and keeps none. */
export function forgetKey() {
  drop();
  key = "";
  sessionStorage.removeItem(KEY_ITEM);
}

/** Drops what waits to be sent with the key until now. */
function drop() {
  limits = null;
  for (const job of waiting.splice(0)) job.reject(signedOut());
}

const signedOut = () => new Refusal("Signed out.", { code: "SIGNED_OUT" });

async function fetched(path, { method = "GET", headers = {}, body, timeoutMs = READ_MS_MAX } = {}) {
  try {
    return await fetch(path, {
      method,
      headers: body === undefined ? headers : { ...headers, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      referrerPolicy: "no-referrer",
      cache: "no-store",
      signal: AbortSignal.timeout(timeoutMs),
    });
  } catch {
    throw new Refusal("The server does not answer.");
  }
}

/** Milliseconds to wait before the next request, as a 429 or 503 says. */
function pauseMs(answer) {
  const seconds = Number(answer.headers.get("Retry-After"));
  return [429, 503].includes(answer.status) && seconds > 0 ? seconds * 1_000 : 0;
}

async function parsed(answer, as) {
  if (!answer.ok) {
    const error = await answer.json().catch(() => ({}));
    const message = error.message ?? `The server answered ${answer.status}.`;
    throw new Refusal(message, { code: error.error, status: answer.status });
  }
  try {
    return as === "blob" ? await answer.blob() : await answer.json();
  } catch {
    throw new Refusal("The server's answer broke off.");
  }
}

/** Reads what everybody may read, without a credential. */
export async function readOpen(path) {
  const waitMs = openPausedUntilMs - performance.now();
  if (waitMs > 0) await new Promise((done) => setTimeout(done, waitMs));
  const answer = await fetched(path);
  openPausedUntilMs = performance.now() + pauseMs(answer);
  return parsed(answer);
}

/**
 * Reads something of the account in its turn. A newer request of the same name takes the place of
 * one that waits.
 */
export function readOwn(name, path, request = {}) {
  const same = waiting.find((job) => job.name === name);
  if (same) {
    Object.assign(same, { path, request });
    return same.promise;
  }
  return enqueue({ name, path, request, isWrite: false });
}

/** Changes something of the account, before anything that is to be read. */
export function writeOwn(method, path, body, headers = {}) {
  const request = { method, body, headers, timeoutMs: WRITE_MS_MAX };
  return enqueue({ name: "", path, request, isWrite: true });
}

function enqueue(job) {
  job.promise = new Promise((resolve, reject) => Object.assign(job, { resolve, reject }));
  waiting.push(job);
  pump();
  return job.promise;
}

function pump() {
  clearTimeout(pumpTimer);
  const write = waiting.findIndex((job) => job.isWrite);
  const at = write >= 0 ? write : document.hidden ? -1 : 0;
  if (!waiting.length || at < 0) return;
  const waitMs = Math.max(lastOwnMs + OWN_GAP_MS, pausedUntilMs) - performance.now();
  if (waitMs > 0) {
    pumpTimer = setTimeout(pump, waitMs);
    return;
  }
  lastOwnMs = performance.now();
  const [job] = waiting.splice(at, 1);
  sendOwn(job).then(job.resolve, job.reject);
  pump();
}

async function sendOwn({ path, request }) {
  const sent = key;
  const headers = { ...request.headers, "X-API-Key": sent };
  const answer = await fetched(path, { ...request, headers });
  if (sent !== key) throw signedOut();
  const [left, of] = ["X-RateLimit-Remaining", "X-RateLimit-Limit"].map((it) => answer.headers.get(it));
  if (left !== null) limits = { left, of };
  pausedUntilMs = performance.now() + pauseMs(answer);
  return parsed(answer, request.as);
}

document.addEventListener("visibilitychange", pump);
