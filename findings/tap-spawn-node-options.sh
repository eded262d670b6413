#!/usr/bin/env bash
# tap 21.8.0: t.spawn() gives the process, and each Node.js process below it, an import hook by NODE_OPTIONS.
#
# The hook follows which files are loaded, for coverage and for tap's watch mode. It is there without either, and no
# documented option turns it off. On Node.js 20 it runs in a thread of its own, so every server that a test starts loads its
# modules through that thread. With `env -u NODE_OPTIONS node …` as the command of t.spawn() a process starts without it,
# and its TAP is read as before.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund tap@21.8.0
cat > child.mjs <<'JS'
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';

const below = execFileSync(process.execPath, ['-p', 'process.env.NODE_OPTIONS ?? ""'], { encoding: 'utf8' }).trim();
writeFileSync(process.argv[2], JSON.stringify([process.env.NODE_OPTIONS ?? '', below]));
console.log('TAP version 14\nok 1\n1..1');
JS
cat > run.mjs <<'JS'
import { t } from 'tap';

t.jobs = 1;
t.spawn(process.execPath, ['child.mjs', 'plain.json']);
t.spawn('env', ['-u', 'NODE_OPTIONS', process.execPath, 'child.mjs', 'without.json']);
JS
env -u NODE_OPTIONS node run.mjs | grep -E '^(ok|not ok) [12] '
cat > check.mjs <<'JS'
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

const read = (name) => JSON.parse(readFileSync(name, 'utf8'));
console.log('t.spawn(node)                       child, and a process below it:', read('plain.json'));
console.log('t.spawn(env -u NODE_OPTIONS node)   child, and a process below it:', read('without.json'));
for (const options of read('plain.json')) assert.match(options, /--import=\S*@tapjs\/processinfo/);
assert.deepEqual(read('without.json'), ['', '']);
JS
node check.mjs
