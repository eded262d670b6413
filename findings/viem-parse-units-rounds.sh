#!/usr/bin/env bash
# viem 2.57.20: parseUnits rounds an amount that has too many decimals; ethers 6.16.0 refuses it.
#
# USDC has 6 decimals. A price of "0.0000004" becomes 0, a payment of nothing, and "0.0000015" becomes 2, a third more
# than asked: half a unit is rounded away from zero, for negative amounts too. Nothing is raised, though a text that is
# no number is. Who moves from ethers, where the same call throws, loses that check. Count the decimals of an amount
# that comes from a catalog or a user before parseUnits sees it.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund viem@2.57.20 ethers@6.16.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { parseUnits as ofEthers } from 'ethers';
import { parseUnits } from 'viem';

const outcome = (parse, amount) => {
  try {
    return parse(amount, 6);
  } catch (error) {
    return error.code ?? 'refused';
  }
};
const amounts = ['1.5', '0.0000004', '0.0000005', '0.0000015', '0.9999999', '-0.0000005', '1,000'];
const seen = amounts.map((amount) => ({ amount, viem: outcome(parseUnits, amount), ethers: outcome(ofEthers, amount) }));
console.table(seen);
assert.deepEqual(seen.map(({ viem }) => viem), [1_500_000n, 0n, 1n, 2n, 1_000_000n, -1n, 'refused']);
const [first, ...others] = seen.map(({ ethers }) => ethers);
assert.equal(first, 1_500_000n);
assert.deepEqual(others, [...Array(5).fill('NUMERIC_FAULT'), 'INVALID_ARGUMENT']);
JS
node run.mjs
