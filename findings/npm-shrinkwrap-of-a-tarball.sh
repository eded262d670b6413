#!/usr/bin/env bash
# npm 11.19.1: the npm-shrinkwrap.json inside a tarball is ignored, unless a registry says beforehand that it is there.
#
# `npm pack` puts the file in, and it is documented as the lock of published programs. But npm looks for it only if the
# registry's metadata has `_hasShrinkwrap: true`, which npm's own registry adds and others need not. So a program handed
# out as a file or URL gets the newest dependencies of the day, with --global and npx as well. npm 12.2.2 never reads
# the file, and its documentation says so. The way out is bundleDependencies, or to unpack the tarball and run `npm ci`
# there (npm 12 wants the file to be called package-lock.json).
set -euo pipefail
cd "$(mktemp -d)"
root=$PWD
npm install --silent --no-audit --no-fund --prefix eleven npm@11.19.1
npm install --silent --no-audit --no-fund --prefix twelve npm@12.2.2
eleven() { node "$root/eleven/node_modules/npm/bin/npm-cli.js" "$@" --silent --no-audit --no-fund; }
twelve() { node "$root/twelve/node_modules/npm/bin/npm-cli.js" "$@" --silent --no-audit --no-fund; }

mkdir tool
cat > tool/package.json <<'JSON'
{ "name": "@example/tool", "version": "1.0.0", "bin": { "tool": "tool.js" }, "dependencies": { "ms": "^2.0.0" } }
JSON
cat > tool/npm-shrinkwrap.json <<'JSON'
{
  "name": "@example/tool",
  "version": "1.0.0",
  "lockfileVersion": 3,
  "packages": {
    "": { "name": "@example/tool", "version": "1.0.0", "bin": { "tool": "tool.js" }, "dependencies": { "ms": "^2.0.0" } },
    "node_modules/ms": { "version": "2.0.0" }
  }
}
JSON
printf '#!/usr/bin/env node\nconsole.log(require("ms/package.json").version === "2.0.0" ? "locked" : "newest");\n' > tool/tool.js
(cd tool && eleven pack > /dev/null)
tarball=$root/tool/example-tool-1.0.0.tgz
tar -tzf "$tarball" package/npm-shrinkwrap.json > /dev/null

# A registry for the scope @example, with `_hasShrinkwrap` in its metadata or without.
cat > registry.mjs <<'JS'
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [tarball, flag] = process.argv.slice(2);
const file = readFileSync(tarball);
const integrity = `sha512-${createHash('sha512').update(file).digest('base64')}`;
const manifest = JSON.parse(readFileSync('tool/package.json', 'utf8'));
if (flag === 'says so') manifest._hasShrinkwrap = true;
const server = createServer((request, response) => {
  if (request.url.endsWith('.tgz')) return response.end(file);
  const dist = { tarball: `http://127.0.0.1:${server.address().port}/tool.tgz`, integrity };
  const versions = { '1.0.0': { ...manifest, dist } };
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ name: manifest.name, 'dist-tags': { latest: '1.0.0' }, versions }));
}).listen(0, '127.0.0.1', () => console.log(server.address().port));
JS
exec 3< <(exec node registry.mjs "$tarball" 'says nothing'); silent=$!
exec 4< <(exec node registry.mjs "$tarball" 'says so'); says=$!
trap 'kill $silent $says' EXIT
read -r silent_port <&3
read -r says_port <&4

installed() {
  local npm=$1 project
  project=$(mktemp -d -p "$root")
  cd "$project"
  echo '{}' > package.json
  "$npm" install "${@:2}" > /dev/null
  node_modules/.bin/tool
}
eleven install --global --prefix "$root/global" "$tarball" > /dev/null
tar -xzf "$tarball"
(cd package && eleven ci > /dev/null)
seen="file: $(installed eleven "$tarball")
file, --global: $(global/bin/tool)
file, npx: $(cd "$(mktemp -d)" && eleven exec --yes --package "$tarball" tool)
URL: $(installed eleven "http://127.0.0.1:$silent_port/tool.tgz")
registry that says nothing: $(installed eleven @example/tool "--@example:registry=http://127.0.0.1:$silent_port")
registry that says so: $(installed eleven @example/tool "--@example:registry=http://127.0.0.1:$says_port")
registry that says so, npm 12: $(installed twelve @example/tool "--@example:registry=http://127.0.0.1:$says_port" 2> /dev/null)
unpacked, npm ci: $(cd package && node tool.js)"
echo "$seen"
[ "$seen" = "file: newest
file, --global: newest
file, npx: newest
URL: newest
registry that says nothing: newest
registry that says so: locked
registry that says so, npm 12: newest
unpacked, npm ci: locked" ]
