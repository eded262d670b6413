#!/usr/bin/env bash
# npm 11.19.1: `npm install --omit=dev NAME` installs nothing if the project has NAME in its devDependencies.
#
# It ends with 0 and "up to date". npm keeps the package the kind of dependency that it was, and then omits it. So an
# optional peer that is a development dependency too, as for tests, needs --save-prod where development dependencies are
# omitted.
set -euo pipefail
cd "$(mktemp -d)"
npm install --silent --no-audit --no-fund --prefix tested npm@11.19.1
npm() { node tested/node_modules/npm/bin/npm-cli.js "$@" --omit=dev --no-audit --no-fund; }
cat > package.json <<'JSON'
{
  "name": "service",
  "version": "1.0.0",
  "peerDependencies": { "ms": "^2.1.3" },
  "peerDependenciesMeta": { "ms": { "optional": true } },
  "devDependencies": { "ms": "2.1.3" }
}
JSON
has() { if [ -d node_modules/ms ]; then echo yes; else echo no; fi; }

npm install ms@2
first=$(has)
npm install --save-prod ms@2
second=$(has)
npm prune
printf 'installed: %s, with --save-prod: %s, after npm prune: %s\n' "$first" "$second" "$(has)"
[ "$first $second $(has)" = 'no yes yes' ]
