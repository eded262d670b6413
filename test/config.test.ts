import assert from 'node:assert/strict';
import test from 'node:test';
import { readConfig } from '../src/config.ts';

const PAYEE = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const X402 = { X402_PAY_TO: PAYEE, X402_FACILITATOR_URL: 'https://facilitator.example/x402' };
const SECRET = 'x'.repeat(32);

function read(env: Record<string, string>) {
  return readConfig({ DATABASE_URL: 'postgres://127.0.0.1/x', ...env });
}

const faultsOf = (env: Record<string, string>): string[] => {
  const result = read(env);
  return 'faults' in result ? result.faults.map(({ name }) => name) : [];
};

const FAULTS: [string, Record<string, string>, string[]][] = [
  ['R47: a payee without a facilitator', { X402_PAY_TO: PAYEE }, ['X402_FACILITATOR_URL']],
  ['R47: a facilitator without a payee', { X402_FACILITATOR_URL: X402.X402_FACILITATOR_URL }, ['X402_PAY_TO']],
  ['a token without a facilitator', { X402_FACILITATOR_AUTH: 'token' }, ['X402_FACILITATOR_URL']],
  ['a payee that is none', { ...X402, X402_PAY_TO: 'alice.eth' }, ['X402_PAY_TO']],
  ['a facilitator that is no URL', { ...X402, X402_FACILITATOR_URL: 'facilitator' }, ['X402_FACILITATOR_URL']],
  ['a node that is no URL', { ...X402, X402_RPC_URL: 'ipc:/x' }, ['X402_RPC_URL']],
  ['a network that is none', { X402_NETWORK: 'base' }, ['X402_NETWORK']],
  ['an asset that is none', { X402_ASSET: 'USDC' }, ['X402_ASSET']],
  ['a short quote secret', { QUOTE_SECRET: 'short' }, ['QUOTE_SECRET']],
  ['a short second quote secret', { QUOTE_SECRET: `${SECRET},short` }, ['QUOTE_SECRET']],
  ['a quote lifetime that is none', { QUOTE_TTL_SECONDS: '0' }, ['QUOTE_TTL_SECONDS']],
  ['a key file that is not there', { SIGNING_KEYS_FILE: '/nowhere/keys.json' }, ['SIGNING_KEYS_FILE']],
  ['a key file that is no key file', { SIGNING_KEYS_FILE: 'package.json' }, ['SIGNING_KEYS_FILE']],
  ['an audio store of another kind', { AUDIO_STORE: 'ftp://x' }, ['AUDIO_STORE']],
  [
    'several faults at once',
    { X402_PAY_TO: 'x', QUOTE_SECRET: 'x', X402_RPC_URL: 'x' },
    ['X402_RPC_URL', 'X402_PAY_TO', 'X402_FACILITATOR_URL', 'QUOTE_SECRET'],
  ],
];

for (const [name, env, faults] of FAULTS) {
  test(`${name}: named as a fault`, () => {
    assert.deepEqual(faultsOf(env).sort(), [...faults].sort());
  });
}

test('payment under x402 is read with the defaults of USDC on Base', () => {
  const result = read({
    ...X402,
    X402_RPC_URL: 'https://node.example/key',
    QUOTE_SECRET: `${SECRET}, ${'y'.repeat(40)}`,
  });
  assert.ok('config' in result);
  const { x402, quotes } = result.config;
  assert.equal(x402?.facilitatorUrl, X402.X402_FACILITATOR_URL);
  assert.equal(x402?.rpcUrl, 'https://node.example/key');
  assert.deepEqual(x402?.asset, {
    network: 'eip155:8453',
    chainId: 8453,
    address: PAYEE,
    name: 'USD Coin',
    version: '2',
  });
  assert.deepEqual(quotes, { secrets: [SECRET, 'y'.repeat(40)], ttlSeconds: 300 });
});

test('without its settings payment under x402 is off', () => {
  const result = read({});
  assert.ok('config' in result);
  assert.deepEqual(
    [result.config.x402, result.config.quotes, result.config.signingKeys],
    [undefined, undefined, undefined],
  );
});
