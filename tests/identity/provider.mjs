// A certified OpenID Connect provider. It reads commands, one a line, from its input, and reports
// results as lines of JSON on its output. It ends when its input does.
//
//   node provider.mjs PACKAGES KEYS_FILE PORT [CERTIFICATE KEY]
//
// PACKAGES is the folder that npm installed the provider in. KEYS_FILE keeps the private keys across
// restarts. With a certificate the provider serves HTTPS.
//
//   token ALGORITHM   signs in as a client and reports an access token signed with that algorithm
//   rotate            signs with new keys from now on; the old ones stay published

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [packages, keysFile, port, certificateFile, certificateKeyFile] = process.argv.slice(2);
const entry = join(packages, "node_modules", "oidc-provider", "lib", "index.js");
const { default: Provider } = await import(pathToFileURL(entry));
const report = (message) => console.log(JSON.stringify(message));

function newKeys() {
  const kinds = {
    RS256: ["rsa", { modulusLength: 2048 }],
    ES256: ["ec", { namedCurve: "P-256" }],
    EdDSA: ["ed25519", {}],
  };
  return Object.entries(kinds).map(([alg, [kind, options]]) => ({
    ...generateKeyPairSync(kind, options).privateKey.export({ format: "jwk" }),
    kid: randomUUID(),
    use: "sig",
    alg,
  }));
}

let keys = existsSync(keysFile) ? JSON.parse(readFileSync(keysFile)) : newKeys();
writeFileSync(keysFile, JSON.stringify(keys));

const handler = { current: undefined };
const answer = (request, response) => handler.current(request, response);
const server = certificateFile
  ? createTlsServer({ cert: readFileSync(certificateFile), key: readFileSync(certificateKeyFile) }, answer)
  : createServer(answer);

await new Promise((resolve) => server.listen(Number(port), "127.0.0.1", resolve));
const scheme = certificateFile ? "https" : "http";
const issuer = `${scheme}://localhost:${server.address().port}`;

function provide() {
  const provider = new Provider(issuer, {
    jwks: { keys },
    clients: [
      {
        client_id: "ada",
        client_secret: "ada's secret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
    ],
    extraTokenClaims: () => ({ "https://example.org/tier": "pro" }),
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        // The name of the resource chooses the algorithm.
        getResourceServerInfo: (_context, resource) => ({
          scope: "trade",
          audience: "paperbourse",
          accessTokenFormat: "jwt",
          accessTokenTTL: 600,
          jwt: { sign: { alg: resource.split(":").pop() } },
        }),
      },
    },
  });
  handler.current = provider.callback();
}

async function token(algorithm) {
  const credentials = Buffer.from(`ada:${encodeURIComponent("ada's secret")}`).toString("base64");
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { authorization: `Basic ${credentials}` },
    body: new URLSearchParams({
      grant_type: "client_credentials",
      resource: `urn:paperbourse:${algorithm}`,
    }),
  });
  return { status: response.status, ...(await response.json()) };
}

provide();
report({ issuer });
for await (const line of createInterface({ input: process.stdin })) {
  const [command, argument] = line.split(" ");
  if (command === "token") {
    report(await token(argument));
  } else if (command === "rotate") {
    keys = [...newKeys(), ...keys];
    writeFileSync(keysFile, JSON.stringify(keys));
    provide();
    report({ rotated: keys.length });
  }
}
process.exit(0);
