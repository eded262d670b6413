import { readFile, writeFile } from 'node:fs/promises';
import canonicalize from 'canonicalize';
import { keccak256, toHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';

const { baseUrl, wallet: demo } = JSON.parse(await readFile('data/sandbox.json', 'utf8'));
const trust = JSON.parse(await readFile('data/trust.json', 'utf8'));
const wallet = privateKeyToAccount(demo.privateKey);

/** Metadata that a key of the operator has signed, got from the operator and not from the service. */
async function verifiedMetadata() {
  const { payload, signature } = await (await fetch(`${baseUrl}/.well-known/x402-service-metadata`)).json();
  const pinned = trust.find(({ keyId }) => keyId === signature.keyId);
  if (!pinned) throw new Error(`${signature.keyId} is no pinned key.`);
  const curve = { name: 'ECDSA', namedCurve: 'P-256' };
  const key = await crypto.subtle.importKey('jwk', pinned.publicKeyJwk, curve, false, ['verify']);
  const signed = [Buffer.from(signature.value, 'base64url'), new TextEncoder().encode(canonicalize(payload))];
  const isGenuine = await crypto.subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, ...signed);
  if (!isGenuine || Date.parse(payload.validity.validUntil) < Date.now()) throw new Error('The metadata is not valid.');
  if (payload.service.origin !== baseUrl) throw new Error(`The metadata is that of ${payload.service.origin}.`);
  return payload;
}

const types = {
  PrepaidRequest: [
    { name: 'account', type: 'address' },
    { name: 'method', type: 'string' },
    { name: 'path', type: 'string' },
    { name: 'bodyHash', type: 'bytes32' },
    { name: 'maxAmountMicroUsd', type: 'uint256' },
    { name: 'nonce', type: 'string' },
    { name: 'expiry', type: 'uint256' },
  ],
};

const { payment, prepaid } = await verifiedMetadata();
const { domainName, domainVersion, chainId } = prepaid.authentication;
const payee = payment.payees.find(({ status }) => status === 'current');
const body = JSON.stringify({ text: 'Hello world' });
const message = {
  account: wallet.address,
  method: 'POST',
  path: '/x402/tts',
  bodyHash: keccak256(toHex(body)),
  maxAmountMicroUsd: 100_000n,
  nonce: crypto.randomUUID(),
  expiry: BigInt(Math.floor(Date.now() / 1000) + 100),
};
const domain = { name: domainName, version: domainVersion, chainId, verifyingContract: payee.address };
const signature = await wallet.signTypedData({ domain, types, primaryType: 'PrepaidRequest', message });

const response = await fetch(`${baseUrl}/x402/tts`, {
  method: 'POST',
  headers: {
    'content-type': 'application/json',
    'x-x402-account': message.account,
    'x-x402-nonce': message.nonce,
    'x-x402-expiry': String(message.expiry),
    'x-x402-max-amount': String(message.maxAmountMicroUsd),
    'x-x402-signature': signature,
  },
  body,
});
if (!response.ok) throw new Error(await response.text());
await writeFile('prepaid-by-hand.mp3', Buffer.from(await response.arrayBuffer()));
console.log('prepaid-by-hand.mp3', response.headers.get('x-x402-charged'), response.headers.get('x-x402-balance'));
