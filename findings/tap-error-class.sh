#!/usr/bin/env bash
# tap 21.8.0 (tcompare 9.3.2): t.rejects(promise, ErrorClass) fails for an instance of that class whose `name` is inherited.
#
# A class as the expected error is first compared like an error object: its `name` has to be contained in the `name` of the
# error. `class NoFunds extends Error {}` inherits the name "Error", so its own instance does not match, while a class that
# sets `name` does. `instanceof` is asked only afterwards. t.throws and t.match do the same; node:assert asks `instanceof`
# alone. A regular expression as the expected error sees the message; that of node:assert also sees "Error: " in front.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund tap@21.8.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { t } from 'tap';

class NoFunds extends Error {}
class Named extends Error {
  name = 'Named';
}
const rejected = (Class) => Promise.reject(new Class('too little'));

await assert.rejects(rejected(NoFunds), NoFunds);
await assert.rejects(rejected(Named), /^Named: too little$/);
await t.rejects(rejected(NoFunds), NoFunds, 'class with an inherited name');
await t.rejects(rejected(Named), Named, 'class with a name of its own');
await t.rejects(rejected(RangeError), RangeError, 'built-in class');
await t.rejects(rejected(Named), /^too little$/, 'expression on the message');
await t.rejects(rejected(Named), /^Named: too little$/, 'expression on name and message');
t.match(new NoFunds('x'), NoFunds, 'match with the class');
JS
seen="$(node run.mjs | grep -E '^(ok|not ok) ' || true)"
echo "$seen"
expected='not ok 1 - class with an inherited name
ok 2 - class with a name of its own
ok 3 - built-in class
ok 4 - expression on the message
not ok 5 - expression on name and message
not ok 6 - match with the class'
[ "$seen" = "$expected" ]
