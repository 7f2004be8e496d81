// Code that is copied with a click, and shown in one language at a time. The page of operations
// uses this for what it makes; on a page of the guide it finds the code itself.

const SHOWN_MS = 2000;
/** The languages of which only one is shown, by the class that Markdown gives them. */
const LANGUAGES = { sh: "curl", python: "Python", typescript: "TypeScript" };

/** The language that the reader has chosen last. */
let chosen = "curl";
const choices = new Set();

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // A page over plain HTTP from another machine has no clipboard.
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  if (!isCopied) throw new Error("the browser does not allow it");
}

/** A button that copies the text of an element as it is at that moment. */
export function copyButton(source, about) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  const say = (word) => {
    button.textContent = word;
    // Spoken, the name begins with what is seen.
    button.setAttribute("aria-label", `${word}: ${about}`);
  };
  say("Copy");
  button.addEventListener("click", async () => {
    try {
      await copy(source.textContent);
      say("Copied");
    } catch {
      getSelection().selectAllChildren(source);
      say("Selected");
    }
    setTimeout(() => say("Copy"), SHOWN_MS);
  });
  return button;
}

/** An element with a button that copies its text. */
export function copyable(source, about) {
  const frame = document.createElement("div");
  frame.className = "copyable";
  frame.append(source, copyButton(source.querySelector("pre") ?? source, about));
  return frame;
}

/** Panels of which one is shown, by name; the language chosen last is chosen in all of them. */
export function tabs(panels, label) {
  const frame = document.createElement("div");
  frame.className = "tabs";
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", label);
  frame.append(list);
  const id = `tabs-${choices.size}`;
  const all = Object.entries(panels).map(([name, panel], at) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `${id}-${at}`;
    tab.textContent = name;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", `${id}-${at}-panel`);
    const holder = document.createElement("div");
    holder.id = `${id}-${at}-panel`;
    holder.setAttribute("role", "tabpanel");
    holder.setAttribute("aria-labelledby", tab.id);
    holder.append(panel);
    tab.addEventListener("click", () => choose(name));
    list.append(tab);
    frame.append(holder);
    return { name, tab, holder };
  });
  list.addEventListener("keydown", ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    const at = all.findIndex(({ tab }) => tab === document.activeElement);
    const next = all[(at + step + all.length) % all.length];
    choose(next.name);
    next.tab.focus();
  });
  const show = () => {
    const shown = all.find(({ name }) => name === chosen) ?? all[0];
    for (const { tab, holder } of all) {
      const isShown = tab === shown.tab;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
      holder.hidden = !isShown;
    }
  };
  choices.add(show);
  show();
  return frame;
}

function choose(name) {
  chosen = name;
  for (const show of choices) show();
}

const languageOf = (block) =>
  LANGUAGES[block?.querySelector("code")?.className.replace("language-", "")];

/** Code blocks that follow each other in different languages become one. */
function arrange(main) {
  const blocks = [...main.querySelectorAll(".wide:has(> pre)")];
  const groups = [];
  for (const block of blocks) {
    const group = groups.at(-1);
    const isNext = group?.at(-1) === block.previousElementSibling && languageOf(block)
      && group.every((it) => languageOf(it) && languageOf(it) !== languageOf(block));
    if (isNext) group.push(block);
    else groups.push([block]);
  }
  for (const group of groups) {
    const place = document.createComment("");
    group[0].before(place);
    const about = (block) => `code, ${languageOf(block) ?? "as text"}`;
    const made = group.map((block) => [languageOf(block), copyable(block, about(block))]);
    const isOne = group.length === 1;
    place.replaceWith(isOne ? made[0][1] : tabs(Object.fromEntries(made), "Language"));
  }
}

if (document.body.classList.contains("guide")) {
  arrange(document.querySelector("main"));
  const outline = document.querySelector(".outline");
  if (outline) outline.open = matchMedia("(min-width: 85rem)").matches;
}
