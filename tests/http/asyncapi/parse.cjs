// Reads a list of AsyncAPI documents from the standard input, and prints for each what the official
// parser objects to: a list, empty if nothing. The argument is the folder in which npm installed the
// parser.

const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");

const [folder] = process.argv.slice(2);
const { Parser } = createRequire(`${folder}/`)("@asyncapi/parser");

async function objections(document) {
  const { diagnostics } = await new Parser().parse(JSON.stringify(document));
  return diagnostics
    // That there is a newer version of the format is no mistake.
    .filter(({ code }) => code !== "asyncapi-latest-version")
    .map(({ code, path, message }) => ({ code, path, message }));
}

async function main() {
  const found = [];
  for (const document of JSON.parse(readFileSync(0, "utf8"))) found.push(await objections(document));
  console.log(JSON.stringify(found));
}

main();
