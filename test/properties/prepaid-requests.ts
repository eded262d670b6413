import type { LocalAccount } from 'viem';
import type { Call } from '../support/gateway.ts';
import type { PrepaidSigner } from '../support/prepaid-signer.ts';
import { mp3, silentMp3 } from '../support/stub-upstream.ts';
import type { WalletModel } from './prepaid-model.ts';
import type { Fault, SpendTerms } from './prepaid-operations.ts';

export interface ClientWallet {
  readonly account: LocalAccount;
  readonly sign: PrepaidSigner;
  readonly model: WalletModel;
  /** For the next spend; reads of the balance show it before that, and must not consume it (R31). */
  nextNonce: string;
  /** One operation at a time, so that its balance is known exactly. */
  readonly isSerial: boolean;
  /** The last one's end. */
  turn: Promise<void>;
}

export interface SpendRequest {
  readonly wallet: ClientWallet;
  readonly nonce: string;
  readonly path: string;
  readonly call: Call;
  readonly price: bigint;
  readonly max: bigint;
  readonly fault: Fault;
  readonly audio: Buffer;
}

export interface DepositRequest {
  readonly wallet: ClientWallet;
  readonly identifier: string;
  readonly amount: bigint;
  readonly call: Call;
}

const RATE = 18n;
const HD_RATE = 36n;
const EXPIRY_SECONDS = 100;
/** An audio for each remainder of the text's length, so that a mix-up would show. */
const AUDIO = [100, 200, 300].map((ms) => ({ mode: mp3(ms), bytes: silentMp3(ms) }));
export const audioFor = (length: number) => AUDIO[length % AUDIO.length] as (typeof AUDIO)[number];

export function makeSpend(wallet: ClientWallet, nonce: string, terms: SpendTerms): SpendRequest {
  const { method, length, isHd, cap, fault, delayMs } = terms;
  const text = `${fault} ${delayMs} `.padEnd(length, 'a');
  const model = `provider-a/tts-1${isHd ? '-hd' : ''}`;
  const price = BigInt(text.length) * (isHd ? HD_RATE : RATE);
  const max = { ample: price * 3n, exact: price, below: price - 1n }[cap];
  const path = method === 'GET' ? `/x402/tts?${new URLSearchParams({ text, model })}` : '/x402/tts';
  const body = { body: JSON.stringify({ text, model }), headers: { 'content-type': 'application/json' } };
  const call = wallet.sign(path, { method, ...(method === 'POST' && body) }, { nonce, expiry: soon(), max });
  return { wallet, nonce, path, call, price, max, fault, audio: audioFor(text.length).bytes };
}

/** The request that was made so many before the latest one. */
export const latest = <T>(requests: readonly T[], back: number): T | undefined => requests.at(-1 - back);

/** A process tells every second what it has delivered; a busy machine takes longer. */
const RECENT_MS = 5_000;
export const isRecent = ({ at }: { readonly at: number }): boolean => performance.now() - at < RECENT_MS;

export const soon = (): bigint => BigInt(Math.floor(Date.now() / 1000) + EXPIRY_SECONDS);

/** The signature with its last digit of s changed. */
export function otherDigit(signature: string): string {
  const digit = signature.at(-3) === '0' ? '1' : '0';
  return `${signature.slice(0, -3)}${digit}${signature.slice(-2)}`;
}
