// Shows openapi.json and asyncapi.json, and sends requests that a reader fills in. Text from the
// documents and from answers only ever becomes text nodes, never markup.

import { copyable, tabs } from "./code.js";

const TYPE_DEPTH_MAX = 6;
const SHOWN_CHARACTERS_MAX = 100_000;

const credential = document.getElementById("credential");
let description;
let conversations;

/** An element with attributes (a function listens to the event of its name) and children. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined));
  return made;
}

/** Text in which `backticks` mark code. */
function prose(text = "") {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

function target(whole, reference) {
  return reference.slice(2).split("/").reduce((found, name) => found?.[name], whole);
}

function resolve(value) {
  // Draft 7 of JSON Schema has no other way to say more about a reference.
  if (value?.allOf?.length === 1) return { ...resolve(value.allOf[0]), ...value, allOf: undefined };
  if (!value?.$ref) return value ?? {};
  return { ...target(description, value.$ref), ...value, $ref: undefined };
}

/** Replaces the references in a document by what they refer to. */
function linked(whole) {
  const seen = new Set();
  const link = (value) => {
    if (typeof value !== "object" || value === null || seen.has(value)) return;
    seen.add(value);
    for (const [key, child] of Object.entries(value)) {
      if (child?.$ref) value[key] = target(whole, child.$ref);
      link(value[key]);
    }
  };
  link(whole);
  return whole;
}

// What a schema says.

const isNull = (schema) => schema.type === "null";
const typesOf = (schema) => [schema.type ?? []].flat().filter((type) => type !== "null");

/** The forms that a value can have, without `null`. */
function formsOf(schema) {
  const found = resolve(schema);
  const forms = found.anyOf ?? found.oneOf;
  return forms ? forms.flatMap(formsOf).filter((form) => !isNull(form)) : [found];
}

function rangeText({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  const parts = [
    minimum !== undefined && `≥ ${minimum}`,
    exclusiveMinimum !== undefined && `> ${exclusiveMinimum}`,
    maximum !== undefined && `≤ ${maximum}`,
    exclusiveMaximum !== undefined && `< ${exclusiveMaximum}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function lengthText({ minLength, maxLength }, unit) {
  if (maxLength === undefined && minLength === 1) return "not empty";
  if (maxLength === undefined) return minLength ? `at least ${minLength} ${unit}` : "";
  return minLength ? `${minLength} to ${maxLength} ${unit}` : `at most ${maxLength} ${unit}`;
}

/** A type in words: `integer, ≥ 1, or string`. */
function typeText(schema) {
  const isNullable = [resolve(schema)].flatMap((it) => [it, ...(it.anyOf ?? it.oneOf ?? [])])
    .some((it) => [it.type].flat().includes("null"));
  const texts = formsOf(schema).map((form) => {
    if (form.const !== undefined) return JSON.stringify(form.const);
    if (form.enum) {
      return form.enum.filter((it) => it !== null).map((it) => JSON.stringify(it)).join(" | ");
    }
    if (form.items) {
      const counts = { minLength: form.minItems, maxLength: form.maxItems };
      const length = lengthText(counts, "items");
      return `list of ${typeText(form.items)}${length && `, ${length}`}`;
    }
    const name = typesOf(form).join(" or ") || (form.properties ? "object" : "any");
    const isTime = /^date/.test(form.format ?? "");
    const bounds = [isTime && form.format, rangeText(form), lengthText(form, "characters")];
    return [name, ...bounds].filter(Boolean).join(", ");
  });
  return [...new Set(texts), ...(isNullable ? ["null"] : [])].join("; or ");
}

/** The schemas of the objects within a schema. */
function objectsIn(schema) {
  return formsOf(schema).flatMap((form) => {
    if (form.allOf) return form.allOf.flatMap(objectsIn);
    if (form.properties) return [form];
    if (form.items) return objectsIn(form.items);
    const others = form.additionalProperties;
    return typeof others === "object" ? objectsIn(others) : [];
  });
}

/** The fields of a schema, with those of the objects in them. */
function fields(schema, depth = 0) {
  const lists = objectsIn(schema).map((object) => {
    const isRequired = (name) => object.required?.includes(name) ?? false;
    const sorted = Object.entries(object.properties)
      .toSorted(([one], [other]) => isRequired(other) - isRequired(one));
    const items = sorted.map(([name, property]) => {
      const about = resolve(property).description;
      return element("li", {},
        element("code", { class: "name" }, name), " ",
        element("span", { class: "type" },
          `${typeText(property)}${isRequired(name) ? "" : ", optional"}`),
        about ? element("p", {}, prose(about)) : undefined,
        depth < TYPE_DEPTH_MAX ? fields(property, depth + 1) : undefined);
    });
    return element("ul", { class: "fields" }, items);
  });
  return lists.flatMap((list, at) => (at ? [element("p", { class: "or" }, "or"), list] : [list]));
}

// What a reader can send.

/**
 * A market of this server, by the values that the document's examples have in their place, so that
 * a request can be sent as it stands.
 */
let ownMarket;
async function ownValues() {
  ownMarket ??= fetch(urlOf("/v1/markets?limit=1"))
    .then((answer) => answer.json())
    .then(([own]) => {
      const { responses } = description.paths["/v1/markets"].get;
      const [example] = responses[200].content["application/json"].example;
      const values = (market) => [market.condition_id, market.slug,
        ...market.outcomes.slice(0, 2), ...market.clob_token_ids.slice(0, 2)];
      const others = values(own);
      return new Map(values(example).map((value, at) => [value, others[at]]));
    })
    .catch(() => {
      // The server may still be starting; the next form asks again.
      ownMarket = undefined;
      return new Map();
    });
  return ownMarket;
}

/** An example about a market of this server. */
function localized(example, own) {
  if (Array.isArray(example)) return example.map((it) => localized(it, own));
  if (typeof example !== "object" || example === null) return own.get(example) ?? example;
  return Object.fromEntries(
    Object.entries(example).map(([name, it]) => [name, localized(it, own)]));
}

/** An example as text. */
function exampleText(example) {
  return typeof example === "string" ? example : JSON.stringify(example, undefined, 2);
}

const urlOf = (path) => new URL(`.${path}`, document.baseURI);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function answersWith(operation, type) {
  return Object.values(operation.responses).some((it) => resolve(it).content?.[type]);
}

/** The header with the reader's credential. A key begins with `ps_`; anything else is a token. */
function credentialHeader(operation, text) {
  if (!operation.security?.length || !text) return {};
  return text.startsWith("ps_") ? { "X-API-Key": text } : { Authorization: `Bearer ${text}` };
}

/** The control of a parameter, and its label. */
function control(parameter, id) {
  const schema = formsOf(parameter.schema)[0];
  const options = schema.enum ?? (typesOf(schema)[0] === "boolean" ? [true, false] : undefined);
  const attributes = { id, name: parameter.name, required: parameter.required };
  const placeholder = schema.default === undefined
    ? `such as ${exampleText(parameter.example)}`
    : `by default ${schema.default}`;
  const input = options
    ? element("select", attributes, element("option", { value: "" }, "(not sent)"),
        options.map((it) => element("option", {}, String(it))))
    : element("input", { ...attributes, spellcheck: "false", autocomplete: "off", placeholder });
  return { parameter, input, label: element("label", { for: id }, parameter.name) };
}

/** The request that a form describes. */
function requestOf(method, path, operation, controls, body) {
  let target = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { parameter, input } of controls) {
    if (input.value === "") continue;
    if (parameter.in === "path") {
      target = target.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    } else if (parameter.in === "query") query.append(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  if (body?.value.trim()) headers["Content-Type"] = "application/json";
  const url = urlOf(target + (query.size ? `?${query}` : ""));
  return { method, url, headers, body: body?.value.trim() || undefined };
}

// The request as code, with the credential left to a variable. What is not filled in yet keeps its
// braces.

const addressOf = ({ href }) => href.replaceAll("%7B", "{").replaceAll("%7D", "}");
const indented = (text, by) => text.replaceAll("\n", `\n${" ".repeat(by)}`);

/** The header for the credential: its name, what stands before it, and the variable with it. */
function variableOf({ security = [] }) {
  const [accepted] = security;
  if (accepted?.apiKey) return ["X-API-Key", "", "KEY"];
  return accepted?.accessToken ? ["Authorization", "Bearer ", "TOKEN"] : undefined;
}

function curlOf({ method, url, headers, body }, operation) {
  const parts = [`curl -X ${method} ${quoted(addressOf(url))}`];
  if (answersWith(operation, "text/event-stream")) parts.push("-N");
  const variable = variableOf(operation);
  if (variable) parts.push(`-H "${variable[0]}: ${variable[1]}$${variable[2]}"`);
  for (const [name, value] of Object.entries(headers)) {
    parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  }
  if (body) parts.push(`-d ${quoted(body)}`);
  return parts.join(" \\\n  ");
}

/** The value of a body; `undefined` while the reader still types it. */
function valueOf(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** A JSON value as Python writes it. */
function pythonValue(value, indent = "") {
  const inner = `${indent}    `;
  const list = (open, items, close) =>
    items.length ? `${open}\n${items.map((it) => `${inner}${it},\n`).join("")}${indent}${close}`
      : open + close;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return list("[", value.map((it) => pythonValue(it, inner)), "]");
  return list("{", Object.entries(value)
    .map(([name, it]) => `${JSON.stringify(name)}: ${pythonValue(it, inner)}`), "}");
}

function pythonOf({ method, url, headers, body }, operation) {
  const variable = variableOf(operation);
  const value = body && valueOf(body);
  const sent = Object.entries(headers)
    .filter(([name]) => value === undefined || name !== "Content-Type")
    .map(([name, text]) => `${JSON.stringify(name)}: ${JSON.stringify(text)}`);
  if (variable) {
    const [name, before, from] = variable;
    sent.unshift(`"${name}": ${before && `"${before}" + `}os.environ["${from}"]`);
  }
  const isEndless = answersWith(operation, "text/event-stream");
  const parts = [
    `"${method}"`, JSON.stringify(addressOf(url)),
    ...(sent.length ? [`headers={${sent.join(", ")}}`] : []),
    ...(value !== undefined ? [`json=${pythonValue(value, "    ")}`]
      : body ? [`content=${JSON.stringify(body)}`] : []),
    ...(isEndless ? ["timeout=None"] : []),
  ];
  const call = `(\n${parts.map((part) => `    ${part},\n`).join("")})`;
  const answer = answersWith(operation, "application/json") ? "answer.json()" : "answer.text";
  return `${variable ? "import os\n\n" : ""}import httpx  # pip install httpx\n\n${isEndless
    ? `with httpx.stream${call} as answer:\n    for line in answer.iter_lines():\n`
      + "        print(line)"
    : `answer = httpx.request${call}\nprint(answer.status_code, ${answer})`}`;
}

function typescriptOf({ method, url, headers, body }, operation) {
  const variable = variableOf(operation);
  const sent = Object.entries(headers)
    .map(([name, text]) => `${JSON.stringify(name)}: ${JSON.stringify(text)}`);
  if (variable) sent.unshift(`"${variable[0]}": \`${variable[1]}\${process.env.${variable[2]}}\``);
  const value = body && valueOf(body);
  const text = value === undefined ? JSON.stringify(body)
    : `JSON.stringify(${indented(JSON.stringify(value, undefined, 2), 2)})`;
  const parts = [
    `method: "${method}"`,
    ...(sent.length ? [`headers: { ${sent.join(", ")} }`] : []),
    ...(body ? [`body: ${text}`] : []),
  ];
  const call = `await fetch(${JSON.stringify(addressOf(url))}, {\n${
    parts.map((part) => `  ${part},\n`).join("")}});`;
  if (answersWith(operation, "text/event-stream")) {
    return `const answer = ${call}\nconst decoder = new TextDecoder();\n`
      + "for await (const bytes of answer.body!) {\n"
      + "  process.stdout.write(decoder.decode(bytes, { stream: true }));\n}";
  }
  const read = answersWith(operation, "application/json") ? "json" : "text";
  return `const answer = ${call}\nconsole.log(answer.status, await answer.${read}());`;
}

const LANGUAGES = { curl: curlOf, Python: pythonOf, TypeScript: typescriptOf };

/** The text of an answer, indented if that changes no number. */
function shown(text, type) {
  let whole = text;
  if (type.startsWith("application/json")) {
    const value = JSON.parse(text);
    if (JSON.stringify(value) === text) whole = JSON.stringify(value, undefined, 2);
  }
  const isCut = whole.length > SHOWN_CHARACTERS_MAX;
  return isCut ? `${whole.slice(0, SHOWN_CHARACTERS_MAX)}\n… (the rest is not shown)` : whole;
}

async function send(request, operation, result) {
  const headers = { ...request.headers, ...credentialHeader(operation, credential.value.trim()) };
  const started = performance.now();
  try {
    const answer = await fetch(request.url, { ...request, headers, credentials: "omit" });
    const text = await answer.text();
    const elapsed_ms = Math.round(performance.now() - started);
    const type = answer.headers.get("content-type") ?? "";
    const names = ["x-request-id", "x-polysim-code", "retry-after", "x-ratelimit-remaining"];
    const sent = names.filter((name) => answer.headers.has(name));
    const status = `${answer.status} ${answer.statusText}`;
    result.replaceChildren(
      element("p", {}, element("strong", { class: answer.ok ? "ok" : "bad" }, status),
        ` in ${elapsed_ms} ms`),
      element("p", { class: "headers" },
        sent.map((name) => element("code", {}, `${name}: ${answer.headers.get(name)}`))),
      code(shown(text, type), "Answer"));
  } catch (error) {
    result.replaceChildren(element("p", {},
      element("strong", { class: "bad" }, "No answer"), `: ${error.message}`));
  }
}

/** Text as it is; a keyboard can reach it to scroll. */
function code(text, label) {
  return element("pre", { tabindex: "0", role: "group", "aria-label": label }, text);
}

/** The form of an operation, which keeps the `commands` in all languages up to date. */
function tryIt(method, path, operation, id, commands) {
  const controls = (operation.parameters ?? []).map(resolve)
    .map((parameter, at) => control(parameter, `${id}-${at}`));
  const sent = operation.requestBody?.content["application/json"];
  const body = sent && element("textarea", { id: `${id}-body`, spellcheck: "false" });
  const result = element("div", { class: "result", "aria-live": "polite" });
  const update = () => {
    const request = requestOf(method, path, operation, controls, body);
    for (const [language, write] of Object.entries(LANGUAGES)) {
      commands[language].textContent = write(request, operation);
    }
    return request;
  };
  ownValues().then((own) => {
    for (const { parameter: { required, example }, input } of controls) {
      // Numbers are ids of what this server has not.
      if (required && !input.value && typeof example === "string") {
        input.value = localized(example, own);
      }
    }
    if (body && !body.value) {
      body.value = exampleText(localized(sent.example, own));
      body.rows = body.value.split("\n").length + 1;
    }
    update();
  });
  const isEndless = answersWith(operation, "text/event-stream") || "101" in operation.responses;
  const submit = async (event) => {
    event.preventDefault();
    const button = event.target.querySelector("button:not(.copy)");
    button.disabled = true;
    await send(update(), operation, result);
    button.disabled = false;
  };
  return element("form", { class: "try", submit, input: update },
    element("h4", {}, "Try it"),
    element("div", { class: "controls" }, controls.flatMap(({ label, input }) => [label, input])),
    body && element("label", { for: body.id }, "Body"), body,
    isEndless
      ? element("p", {}, "The answer has no end, so this page does not send the request.")
      : element("button", {}, "Send"),
    result);
}

// What the page shows of an operation.

function parameterList(parameters) {
  return element("ul", { class: "fields" }, parameters.map(({ name, in: place, ...parameter }) =>
    element("li", {},
      element("code", { class: "name" }, name), " ",
      element("span", { class: "type" },
        `${place}, ${typeText(parameter.schema)}${parameter.required ? "" : ", optional"}`),
      parameter.description ? element("p", {}, prose(parameter.description)) : undefined)));
}

/** What each error says, by its code. */
function errorList(errors) {
  return element("ul", {}, errors.map(({ error, message }) =>
    element("li", {}, element("code", {}, error), " ", message)));
}

function answerList(responses) {
  return Object.entries(responses).map(([status, response]) => {
    const found = resolve(response);
    const [[type, content] = []] = Object.entries(found.content ?? {});
    const examples = Object.values(content?.examples ?? {}).map((it) => resolve(it).value);
    const errors = examples.filter((it) => it.error);
    const [example = content?.example] = examples.filter((it) => !it.error);
    const hasFields = status < 300 && content && objectsIn(content.schema).length;
    // Errors say more than a list of their codes.
    const isOther = !errors.length || example !== undefined;
    const line = [element("strong", {}, status), " ", isOther ? prose(found.description) : [],
      type && type !== "application/json" ? ` ${type}` : ""];
    const isList = content && formsOf(content.schema).some((form) => form.items);
    const about = [element("p", {}, line, isList ? " A list of:" : ""),
      hasFields ? fields(content.schema) : [], errors.length ? errorList(errors) : []];
    if (example === undefined) return element("li", {}, about);
    const title = `Example of ${status}`;
    return element("li", {}, beside(about,
      [element("p", {}, "Example:"), copyable(code(exampleText(example), title), title)]));
  });
}

/** What is said, and beside it, where there is room, what it looks like. */
function beside(said, shownAs) {
  return element("div", { class: "beside" }, element("div", {}, said), element("div", {}, shownAs));
}

/** What is said on a socket or a stream; empty for other paths. */
function conversation(path) {
  const { channels, operations } = conversations;
  const channel = Object.values(channels).find(({ address }) => address === path);
  if (!channel) return [];
  const own = Object.values(operations).filter((operation) => operation.channel === channel);
  const received = own.filter(({ action }) => action === "receive");
  const unasked = own.filter(({ action }) => action === "send");
  const answers = received.map(({ reply }) => reply);
  const sent = new Set([...unasked, ...answers].flatMap(({ messages }) => messages));
  const codes = channel["x-close-codes"] ?? [];
  const list = (title, items) =>
    items.length ? [element("h4", {}, title), element("ul", { class: "answers" }, items)] : [];
  return [
    element("p", {}, prose(channel.description)),
    list("Messages to the server", received.map(({ messages: [message], reply }) =>
      messageItem(message, `Answered with ${reply.messages.map(named).join(" or ")}.`))),
    list("Messages from the server", [...sent].map((message) => messageItem(message))),
    list("Close codes", codes.map(({ code: number, reason, advice }) =>
      element("li", {}, element("strong", {}, number), ` ${reason}. ${advice}`))),
  ];
}

const named = ({ name }) => `\`${name}\``;

function messageItem({ name, summary, payload, examples }, answered) {
  // An event has its name beside the data.
  const { type, action, ...rest } = examples[0].payload;
  const example = JSON.stringify({ type, action, ...rest }, undefined, 2);
  const title = `Example of ${name}`;
  return element("li", {}, beside(
    [element("p", {}, element("strong", {}, name), " ", prose(summary), " ", prose(answered)),
      fields(payload)],
    copyable(code(example, title), title)));
}

function credentialText(operation) {
  const names = { apiKey: "a key", accessToken: "an access token", socketToken: "?token=" };
  const accepted = (operation.security ?? []).flatMap(Object.keys).map((name) => names[name]);
  return accepted.length ? `Needs ${accepted.join(" or ")}.` : "Needs no credential.";
}

function details(method, path, operation, id) {
  const parameters = (operation.parameters ?? []).map(resolve);
  const body = operation.requestBody;
  const schema = body?.content["application/json"]?.schema;
  const said = [
    parameters.length ? [element("h4", {}, "Parameters"), parameterList(parameters)] : [],
    schema
      ? [element("h4", {}, "Body", body.required ? "" : " (optional)"),
          element("p", {}, prose(resolve(schema).description)), fields(schema)]
      : [],
  ];
  const commands = Object.fromEntries(Object.keys(LANGUAGES)
    .map((language) => [language, code("", `The request in ${language}`)]));
  const panels = Object.fromEntries(Object.entries(commands)
    .map(([language, command]) => [language, copyable(command, `the request in ${language}`)]));
  const isSocket = "101" in operation.responses;
  return [
    element("p", {}, prose(operation.summary), " ", credentialText(operation), " ",
      prose(operation.description)),
    isSocket ? said
      : beside(said, [element("h4", {}, "Request"), tabs(panels, `Request of ${method} ${path}`)]),
    conversation(path),
    tryIt(method, path, operation, id, commands),
    element("h4", {}, "Answers"),
    element("ul", { class: "answers" }, answerList(operation.responses)),
  ].flat(Infinity);
}

function section(method, path, operation) {
  const id = operation.operationId;
  const name = [element("span", { class: `method ${method.toLowerCase()}` }, method), " ",
    element("code", {}, path)];
  const open = element("details", { id },
    element("summary", {}, element("h3", {}, name),
      element("span", { class: "about" }, prose(operation.summary))));
  open.addEventListener("toggle", () => {
    if (open.open && open.childElementCount === 1) {
      open.append(element("div", { class: "body" }, details(method, path, operation, id)));
    }
  });
  const link = element("li", {}, element("a", { href: `#${id}`, click: () => reveal(id) },
    element("span", { class: `method ${method.toLowerCase()}` }, method), " ", path));
  const words = `${method} ${path} ${operation.summary}`.toLowerCase();
  return { open, link, words };
}

/** Opens the operation with this id and goes there. */
function reveal(id) {
  const found = document.getElementById(id);
  if (found instanceof HTMLDetailsElement) {
    found.open = true;
    found.scrollIntoView();
  }
}

function show() {
  const { info, tags, paths } = description;
  document.getElementById("version").textContent = info.version;
  const introduction = info.description.split("\n\n");
  document.getElementById("introduction")
    .append(...introduction.map((text) => element("p", {}, prose(text))));
  const operations = new Map(Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .map(([method, it]) => [it.operationId, [method.toUpperCase(), path, it]])));
  const groups = tags.map((tag) => {
    const own = tag["x-operations"].map((id) => section(...operations.get(id)));
    const heading = `tag-${tag.name}`;
    const group = element("section", { "aria-labelledby": heading },
      element("h2", { id: heading }, tag.name), element("p", {}, prose(tag.description)),
      own.map(({ open }) => open));
    const entry = element("div", {}, element("a", { class: "tag", href: `#${heading}` }, tag.name),
      element("ul", {}, own.map(({ link }) => link)));
    document.getElementById("operations").append(group);
    document.getElementById("contents").append(entry);
    return { own, group, entry };
  });
  document.getElementById("filter").addEventListener("input", ({ target }) => {
    const wanted = target.value.toLowerCase().split(/\s+/);
    for (const { own, group, entry } of groups) {
      for (const { open, link, words } of own) {
        open.hidden = link.hidden = !wanted.every((word) => words.includes(word));
      }
      group.hidden = entry.hidden = own.every(({ open }) => open.hidden);
    }
  });
  window.addEventListener("hashchange", () => reveal(location.hash.slice(1)));
  reveal(location.hash.slice(1));
}

try {
  const read = async (name) => {
    const answer = await fetch(urlOf(`/${name}`));
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    return answer.json();
  };
  const documents = ["openapi.json", "asyncapi.json"].map(read);
  description = await documents[0];
  conversations = linked(await documents[1]);
  show();
} catch (error) {
  const trouble = document.getElementById("trouble");
  trouble.textContent = `The API cannot be shown: ${error.message}. Reload the page to try again.`;
}
