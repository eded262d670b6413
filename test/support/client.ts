import assert from 'node:assert/strict';
import type { Test } from 'tap';
import type { LocalAccount } from 'viem';
import {
  type Budget,
  type PinnedKey,
  prepaid,
  Speechgate,
  type SpeechgateOptions,
} from '../../src/callers/client/index.ts';
import { publicKeyJwk } from '../../src/config/signing-keys.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import type { TestChain } from './chain.ts';
import { type Gateway, startGateway } from './gateway.ts';
import { fundedWallet, type PrepaidGateway } from './prepaid.ts';
import { type StubUpstream, testUpstream } from './stub-upstream.ts';
import { startX402Gateway, type X402Gateway } from './x402.ts';

/** The least that a service can list. */
export const ONE_MODEL = {
  defaultModel: 'a',
  models: [
    {
      id: 'a',
      name: 'A',
      description: 'A',
      maxInputCharacters: 4096,
      defaultVoice: 'a',
      pricing: { ratePerCharUsd: 0.000018, ratePerMillionCharsUsd: 18 },
      voices: [],
      available: true,
    },
  ],
};

/** The operator's keys, as a caller gets them out of band. */
export function pinsOf({ config }: Gateway): readonly PinnedKey[] {
  return (config.signingKeys ?? []).map((key) => ({ keyId: key.keyId, publicKeyJwk: publicKeyJwk(key) }));
}

/** The settings of a gateway whose BASE_URL is where it listens, as callers who verify metadata need it. */
export async function listening(): Promise<Record<string, string>> {
  const port = await freePort();
  return { PORT: String(port), BASE_URL: `http://127.0.0.1:${port}` };
}

/** A gateway for callers, with a chain. */
export async function startPaidGateway(
  t: Test,
  chain: TestChain,
  env: Record<string, string> = {},
  options: Parameters<typeof startX402Gateway>[3] = {},
): Promise<X402Gateway> {
  return startX402Gateway(t, chain, { ...(await listening()), ...env }, options);
}

/** A gateway for callers who pay by card. */
export async function startCardGateway(
  t: Test,
  env: Record<string, string> = {},
): Promise<Gateway & { readonly upstream: StubUpstream }> {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(
    t,
    { ...(await listening()), SPEECH_BASE_URL: upstream.url, ...env },
    { worker: true },
  );
  return { ...gateway, upstream };
}

/** A wallet that counts what it signs. */
export function countingWallet(wallet: LocalAccount): LocalAccount & { readonly signed: number } {
  let signed = 0;
  return {
    ...wallet,
    signTypedData: (parameters) => {
      signed += 1;
      return wallet.signTypedData(parameters);
    },
    signMessage: (parameters) => {
      signed += 1;
      return wallet.signMessage(parameters);
    },
    get signed() {
      return signed;
    },
  };
}

/** A client that pays from a new wallet's balance, which counts what it signs. */
export async function prepaidCaller(gateway: PrepaidGateway, options: Partial<SpeechgateOptions> = {}) {
  const payer = await fundedWallet(gateway, 1_000_000n);
  const wallet = countingWallet(payer.wallet);
  const { baseUrl } = gateway.config;
  const client = new Speechgate({ baseUrl, pay: prepaid(wallet), trust: pinsOf(gateway), ...options });
  return { client, wallet, balance: payer.balance };
}

/** A budget that writes down what it is told. */
export function recordingBudget(fails?: 'reserve' | 'record' | 'settle') {
  const told: string[] = [];
  const tell = (what: 'reserve' | 'record' | 'settle', of: string) => {
    told.push(`${what} ${of}`);
    if (what === fails) throw new Error(`no ${what}`);
  };
  const budget: Budget = {
    reserve: async ({ flow, maxMicroUsd }) => {
      tell('reserve', `${flow} ${maxMicroUsd}`);
      return {
        record: async ({ kind }) => tell('record', kind),
        settle: async (charged) => tell('settle', String(charged)),
      };
    },
  };
  return { budget, told };
}

/** What a purchase failed with. */
export const errorOf = (promise: Promise<unknown>) =>
  promise.then(
    () => assert.fail('it was bought'),
    (error) => error,
  );

/** An answer with the `Date` of a test that has moved Date.now: Node's own header does not take it from there. */
export function dated({ body, status, headers: real }: Response): Response {
  const headers = new Headers(real);
  headers.set('date', new Date(Date.now()).toUTCString());
  return new Response(body, { status, headers });
}
