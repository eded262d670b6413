#!/usr/bin/env bash
# natural 8.1.1: to import a sentence splitter reads .env of the current folder into process.env and prints to stdout.
#
# Modules for storage in databases and files each load dotenv, and natural's index loads them all. So variables that are
# meant for another program become this one's, unless they are set already: here an OpenAI client, in code that never
# reads a file, would send its key and text to another server. A program whose stdout is data (JSON, MCP, audio) gets
# five lines of text in front of it, also where there is no .env. natural/lib/natural/tokenizers/index.js does neither.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund natural@8.1.1 dotenv@17.4.2 openai@7.59.0
echo 'OPENAI_BASE_URL=http://127.0.0.1:8880/v1' > .env
for name in natural natural/lib/natural/tokenizers/index.js; do
  cat > "split-with-$(basename "$name" .js).mjs" <<JS
import natural from '$name';
import OpenAI from 'openai';
const sentences = new natural.SentenceTokenizer([]).tokenize('One sentence. Another one.');
console.log(JSON.stringify({ sentences, baseURL: new OpenAI({ apiKey: 'example' }).baseURL }));
JS
done
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';

const { OPENAI_BASE_URL: _, ...env } = process.env;
function run(name, settings = {}) {
  const stdout = execFileSync(process.execPath, [name], { encoding: 'utf8', env: { ...env, ...settings } });
  console.log(`${name} ${JSON.stringify(settings)}\n${stdout}`);
  const lines = stdout.trim().split('\n');
  return { ...JSON.parse(lines.pop()), linesBefore: lines.length };
}

const sentences = ['One sentence.', 'Another one.'];
const openai = 'https://api.openai.com/v1';
const whole = 'split-with-natural.mjs';
assert.deepEqual(run(whole), { sentences, baseURL: 'http://127.0.0.1:8880/v1', linesBefore: 5 });
assert.deepEqual(run(whole, { OPENAI_BASE_URL: openai }), { sentences, baseURL: openai, linesBefore: 5 });
assert.deepEqual(run('split-with-index.mjs'), { sentences, baseURL: openai, linesBefore: 0 });
JS
node run.mjs
