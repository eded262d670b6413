import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { test } from 'tap';
import {
  type Address,
  domainSeparator,
  type Hex,
  hexToBigInt,
  type LocalAccount,
  numberToHex,
  parseEventLogs,
  parseSignature,
} from 'viem';
import { ASSET, CHAIN_ID } from '../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi, usdcBalance } from '../../src/sandbox/chain/fund.ts';
import {
  cancelAuthorization,
  included,
  newNonce,
  partsOf,
  signAuthorization,
  signCancellation,
  submitAuthorization,
  termsOf,
  testChain,
  USDC_DOMAIN,
  usesOfAuthorizations,
  wallet,
} from '../support/chain.ts';
import { projectFile } from '../support/project.ts';

const { skip, chain } = await testChain();
const usdc = { address: ASSET, abi: usdCoinAbi } as const;
const SECP256K1_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

type Write = Parameters<typeof chain.client.writeContract>[0];
const write = (account: LocalAccount, functionName: string, args: readonly unknown[]) =>
  chain.client.writeContract({ account, ...usdc, functionName, args } as Write);
type Read = Parameters<typeof chain.client.readContract>[0];
const read = (functionName: string, ...args: unknown[]) =>
  chain.client.readContract({ ...usdc, functionName, args } as Read);
const done = (sent: Promise<Hex>) => included(chain.client, sent);
const balance = ({ address }: LocalAccount) => usdcBalance(chain.client, address);

/** EIP-3009's functions take a signature as bytes or in parts. */
const signatureArguments = {
  bytes: (signature: Hex) => [signature],
  'v, r, s': (signature: Hex) => partsOf(signature),
};

async function eventsOf(hash: Hex) {
  const { logs } = await chain.client.getTransactionReceipt({ hash });
  return parseEventLogs({ abi: usdCoinAbi, logs }).map(({ eventName, args }) => ({ eventName, args }));
}

test('the committed bytecode matches the compiled sources', async () => {
  const script = fileURLToPath(projectFile('src/sandbox/chain/compile.ts'));
  await promisify(execFile)(process.execPath, ['--import', 'tsx', script, '--check']);
});

test('the chain has the chain id, address and domain of USDC on Base', { skip }, async (t) => {
  t.equal(await chain.client.getChainId(), CHAIN_ID);
  t.equal(chain.asset, '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913');
  const names = ['name', 'symbol', 'version', 'decimals', 'DOMAIN_SEPARATOR'] as const;
  const contracts = names.map((functionName) => ({ ...usdc, functionName }) as const);
  // viem asks the Multicall contract.
  const answers = await chain.client.multicall({ contracts, allowFailure: false });
  t.strictSame(answers, ['USD Coin', 'USDC', '2', 6, domainSeparator({ domain: USDC_DOMAIN })]);
});

for (const [overload, argumentsOf] of Object.entries(signatureArguments)) {
  test(`EIP-3009 transferWithAuthorization (${overload}) moves the money once`, { skip }, async (t) => {
    const [payer, payee, sender] = [
      await wallet(chain.client, 1000n),
      await wallet(chain.client),
      await wallet(chain.client),
    ];
    const signed = await signAuthorization(payer, { to: payee.address, value: 600n });
    const { nonce } = signed.authorization;
    const submit = () =>
      write(sender, 'transferWithAuthorization', [...termsOf(signed), ...argumentsOf(signed.signature)]);
    const hash = await done(submit());
    t.strictSame(await eventsOf(hash), [
      { eventName: 'AuthorizationUsed', args: { authorizer: payer.address, nonce } },
      { eventName: 'Transfer', args: { from: payer.address, to: payee.address, value: 600n } },
    ]);
    t.strictSame([await balance(payee), await read('authorizationState', payer.address, nonce)], [600n, true]);
    await t.rejects(submit(), /FiatTokenV2: authorization is used or canceled/);
    t.strictSame(await usesOfAuthorizations(chain.client, payer.address), [hash]);
  });

  test(`R25: EIP-3009 cancelAuthorization (${overload}) uses the nonce without payment`, { skip }, async (t) => {
    const [payer, payee] = [await wallet(chain.client, 1000n), await wallet(chain.client)];
    const signed = await signAuthorization(payer, { to: payee.address, value: 600n });
    const { nonce } = signed.authorization;
    const signature = await signCancellation(payer, nonce);
    const hash = await done(write(payee, 'cancelAuthorization', [payer.address, nonce, ...argumentsOf(signature)]));
    t.strictSame(await eventsOf(hash), [
      { eventName: 'AuthorizationCanceled', args: { authorizer: payer.address, nonce } },
    ]);
    t.equal(await read('authorizationState', payer.address, nonce), true);
    await t.rejects(submitAuthorization(chain.client, payee, signed), /used or canceled/);
    await t.rejects(cancelAuthorization(chain.client, payer, nonce), /used or canceled/);
    t.strictSame(await usesOfAuthorizations(chain.client, payer.address), []);
  });
}

test("an invalid authorization is refused with the real token's reason", { skip }, async () => {
  const [payer, other] = [await wallet(chain.client, 1000n), await wallet(chain.client)];
  const to = other.address;
  const now = (await chain.client.getBlock()).timestamp;
  const refuse = async (signed: Awaited<ReturnType<typeof signAuthorization>>, reason: RegExp) => {
    await assert.rejects(submitAuthorization(chain.client, other, signed), reason);
    assert.equal(await balance(payer), 1000n);
  };
  await refuse(
    await signAuthorization(payer, { to, value: 1n, validBefore: now }),
    /FiatTokenV2: authorization is expired/,
  );
  await refuse(
    await signAuthorization(payer, { to, value: 1n, validAfter: now + 600n }),
    /FiatTokenV2: authorization is not yet valid/,
  );
  await refuse(
    await signAuthorization(other, { to, value: 1n, from: payer.address }),
    /FiatTokenV2: invalid signature/,
  );
  await refuse(await signAuthorization(payer, { to, value: 1001n }), /ERC20: transfer amount exceeds balance/);
  const signed = await signAuthorization(payer, { to, value: 1n });
  const tampered = { ...signed, authorization: { ...signed.authorization, value: 2n } };
  await refuse(tampered, /FiatTokenV2: invalid signature/);
  await refuse({ ...signed, signature: '0x1234' }, /ECRecover: invalid signature length/);
  const { r, s, yParity } = parseSignature(signed.signature);
  const twin = numberToHex(SECP256K1_ORDER - hexToBigInt(s), { size: 32 });
  const malleated: Hex = `${r}${twin.slice(2)}${yParity ? '1b' : '1c'}`;
  await refuse({ ...signed, signature: malleated }, /ECRecover: invalid signature 's' value/);
  await refuse({ ...signed, signature: `${signed.signature.slice(0, -2)}00` as Hex }, /invalid signature 'v' value/);
});

test('a contract wallet verifies its own signatures (EIP-1271)', { skip }, async (t) => {
  const [funder, payee] = [await wallet(chain.client, 1000n), await wallet(chain.client)];
  const contract = `0x${newNonce().slice(-40)}` as Address;
  await done(write(funder, 'transfer', [contract, 1000n]));
  const signed = await signAuthorization(funder, { from: contract, to: payee.address, value: 10n });
  await t.rejects(submitAuthorization(chain.client, payee, signed), /FiatTokenV2: invalid signature/);
  // Answers every call with 0x1626ba7e.
  await chain.client.setCode({ address: contract, bytecode: '0x631626ba7e60e01b60005260206000f3' });
  await done(submitAuthorization(chain.client, payee, { ...signed, signature: '0x1234' }));
  t.equal(await balance(payee), 10n);
  // Answers every call with nothing.
  await chain.client.setCode({ address: contract, bytecode: '0x00' });
  const next = await signAuthorization(funder, { from: contract, to: payee.address, value: 10n });
  await t.rejects(submitAuthorization(chain.client, payee, next), /FiatTokenV2: invalid signature/);
});
