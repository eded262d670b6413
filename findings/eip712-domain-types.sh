#!/usr/bin/env bash
# viem 2.57.1 and @metamask/eth-sig-util 9.0.0 leave members of an EIP-712 domain out of the hash without an error.
#
# viem derives the domain's types from the values: a chainId that is text (as it comes from JSON) is no number, so the
# signature is for a domain without a chain. ethers takes the same object and includes it. eth-sig-util includes only what
# `types.EIP712Domain` lists; without that entry the domain is empty. In each case the signature looks fine and is refused.
set -euo pipefail
cd "$(mktemp -d)"
npm init -y > /dev/null
npm install --silent --no-audit --no-fund viem@2.57.1 ethers@6.15.0 @metamask/eth-sig-util@9.0.0
cat > run.mjs <<'JS'
import assert from 'node:assert/strict';
import { SignTypedDataVersion, TypedDataUtils } from '@metamask/eth-sig-util';
import { TypedDataEncoder } from 'ethers';
import { hashTypedData } from 'viem';

const domain = { name: 'Shop', version: '1', verifyingContract: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913' };
const number = { ...domain, chainId: 8453 };
const text = { ...domain, chainId: '8453' };
const types = { Order: [{ name: 'text', type: 'string' }, { name: 'price', type: 'uint256' }] };
const EIP712Domain = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
];
const message = { text: 'Hello', price: '198' };
const order = { types, primaryType: 'Order', message };
const withDomain = { ...order, types: { EIP712Domain, ...types } };
const sigUtil = (data) => `0x${Buffer.from(TypedDataUtils.eip712Hash(data, SignTypedDataVersion.V4)).toString('hex')}`;

const right = TypedDataEncoder.hash(number, types, message);
const seen = {
  'ethers, chainId as text': TypedDataEncoder.hash(text, types, message) === right,
  'viem, chainId as number': hashTypedData({ ...order, domain: number }) === right,
  'viem, chainId as text': hashTypedData({ ...order, domain: text }) === right,
  'viem, chainId as text, EIP712Domain given': hashTypedData({ ...withDomain, domain: text }) === right,
  'viem, chainId as text, equals no chainId': hashTypedData({ ...order, domain: text }) === hashTypedData({ ...order, domain }),
  'eth-sig-util, EIP712Domain given': sigUtil({ ...withDomain, domain: number }) === right,
  'eth-sig-util without it': sigUtil({ ...order, domain: number }) === right,
};
console.log(seen);
assert.deepEqual(Object.values(seen), [true, true, false, true, true, true, false]);
JS
node run.mjs
