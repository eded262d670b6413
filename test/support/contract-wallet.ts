import { randomUUID } from 'node:crypto';
import type { PaymentPayload } from '@x402/core/types';
import { type Address, type Hex, toHex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { fund } from '../../src/sandbox/chain/fund.ts';
import { newNonce, type TestChain } from './chain.ts';
import { withTerms } from './deposit.ts';
import type { Call, Gateway } from './gateway.ts';
import { challengeOf, sign } from './x402.ts';

/** Answers every call with 0x1626ba7e when the signature's first byte is 1, else with 0. */
const CODE = '0x60643560001a600114631626ba7e60e01b0260005260206000f3';
export const APPROVED: Hex = `0x01${'00'.repeat(65)}`;
export const FORGED: Hex = `0x02${'00'.repeat(65)}`;

/** The address of a contract that judges signatures in its name (EIP-1271), and holds this many micro-USDC. */
export async function contractWallet(chain: TestChain, usdc: bigint): Promise<Address> {
  const address = await undeployedWallet(chain, usdc);
  await deploy(chain, address);
  return address;
}

/** The address that such a contract will have, with this many micro-USDC and without code yet. */
export async function undeployedWallet({ client }: TestChain, usdc: bigint): Promise<Address> {
  const address = toHex(BigInt(newNonce()) >> 96n, { size: 20 });
  await fund(client, address, { usdc });
  return address;
}

export const deploy = ({ client }: TestChain, address: Address) => client.setCode({ address, bytecode: CODE });

/** What of a payment is somebody else's, as who has seen it may repeat it. */
export interface Seen {
  readonly identifier?: string;
  readonly nonce?: Hex;
}

/** A payment in the payer's name by somebody who has not got its key. */
export async function forge(
  gateway: Gateway,
  payer: Address,
  call: Call,
  { identifier = `pay_${randomUUID()}`, nonce = newNonce() }: Seen = {},
): Promise<PaymentPayload> {
  const stranger = privateKeyToAccount(generatePrivateKey());
  const payload = await sign(stranger, await challengeOf(gateway, '/x402/tts', call), identifier);
  return withTerms(stranger, payload, { from: payer, nonce });
}

/** A payment of a contract's wallet, with a signature that it approves of or not. */
export async function payFromContract(
  gateway: Gateway,
  payer: Address,
  call: Call,
  signature: Hex = APPROVED,
  seen: Seen = {},
): Promise<PaymentPayload> {
  const payload = await forge(gateway, payer, call, seen);
  return { ...payload, payload: { ...payload.payload, signature } };
}
