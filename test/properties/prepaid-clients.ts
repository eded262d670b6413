import assert, { AssertionError } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { PaymentRequired } from '@x402/core/types';
import type { LocalAccount } from 'viem';
import { type Call, type Reply, send } from '../support/gateway.ts';
import type { GatewayProcess } from '../support/gateway-process.ts';
import type { PrepaidSigner } from '../support/prepaid-signer.ts';
import {
  type Mode,
  mp3,
  openAiError,
  resetBeforeHeaders,
  resetInBody,
  silentMp3,
  wav,
} from '../support/stub-upstream.ts';
import { decodeHeader, sign, withPayment } from '../support/x402.ts';
import type { Attempt, End, WalletModel } from './prepaid-model.ts';
import type { Fault, Operation, SpendTerms } from './prepaid-operations.ts';

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

interface SpendRequest {
  readonly wallet: ClientWallet;
  readonly nonce: string;
  readonly path: string;
  readonly call: Call;
  readonly price: bigint;
  readonly max: bigint;
  readonly fault: Fault;
  readonly audio: Buffer;
}

interface DepositRequest {
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
const audioFor = (length: number) => AUDIO[length % AUDIO.length] as (typeof AUDIO)[number];

const FAULTS: Record<Exclude<Fault, 'fine'>, Mode> = {
  error: openAiError(500),
  reset: resetBeforeHeaders(),
  cut: resetInBody(),
  wav: wav(100),
};

/** The provider: each text says how it is treated and how long that takes. */
export const speakAsTold: Mode = (request, response) => {
  const text = String(request.body?.input);
  const [fault, delayMs] = text.split(' ') as [Fault, string];
  const mode = fault === 'fine' ? audioFor(text.length).mode : FAULTS[fault];
  setTimeout(() => mode(request, response), Number(delayMs));
};

/** What was seen, by kind of operation or end. */
export type Tally = Record<End | 'unauthorized' | 'read' | 'credited' | 'repeated' | 'lost deposit', number>;

/** Clients of wallets, which do operations and hold every answer against what they know together. */
export class Clients {
  readonly tally: Tally = {
    ...{ charged: 0, restored: 0, reversed: 0, refused: 0, replayed: 0, lost: 0 },
    ...{ unauthorized: 0, read: 0, credited: 0, repeated: 0, 'lost deposit': 0 },
  };
  readonly #wallets: readonly ClientWallet[];
  readonly #processes: readonly GatewayProcess[];
  readonly #challenges = new Map<number, Promise<PaymentRequired>>();
  readonly #spends: SpendRequest[] = [];
  readonly #refused: SpendRequest[] = [];
  readonly #deposits: DepositRequest[] = [];
  /** Charged attempts that their processes may not have told to be delivered. */
  #recent: { wallet: ClientWallet; attempt: Attempt; process: GatewayProcess; at: number }[] = [];

  /** @param processes the living ones, at any time */
  constructor(wallets: readonly ClientWallet[], processes: readonly GatewayProcess[]) {
    this.#wallets = wallets;
    this.#processes = processes;
  }

  async run(operation: Operation): Promise<void> {
    const { gateway } = operation;
    switch (operation.kind) {
      case 'spend': {
        const wallet = this.#wallet(operation.wallet);
        return inTurn(wallet, () => {
          const nonce = wallet.nextNonce;
          wallet.nextNonce = randomUUID();
          return this.#spend(makeSpend(wallet, nonce, operation), gateway);
        });
      }
      case 'replay': {
        const request = latest(this.#spends, operation.back);
        return request && inTurn(request.wallet, () => this.#spend(request, gateway));
      }
      case 'reuse': {
        const request = latest(this.#refused, operation.back);
        if (!request) return;
        const { wallet, nonce } = request;
        return inTurn(wallet, () => this.#spend(makeSpend(wallet, nonce, operation), gateway));
      }
      case 'mutate': {
        const request = latest(this.#spends, operation.back);
        return request && this.#mutate(request, operation.what, gateway);
      }
      case 'read': {
        const wallet = this.#wallet(operation.wallet);
        return inTurn(wallet, () => this.read(wallet, gateway));
      }
      case 'deposit': {
        const wallet = this.#wallet(operation.wallet);
        const { amount } = operation;
        const identifier = `pay_${randomUUID()}`;
        const call: Call = { method: 'POST', json: { amountMicroUsd: amount } };
        const payload = await sign(wallet.account, await this.#challenge(amount, call, gateway), identifier);
        const request = { wallet, identifier, amount: BigInt(amount), call: withPayment(call, payload) };
        this.#deposits.push(request);
        return inTurn(wallet, () => this.#deposit(request, gateway));
      }
      case 'repeat deposit': {
        const request = latest(this.#deposits, operation.back);
        return request && inTurn(request.wallet, () => this.#deposit(request, gateway));
      }
    }
  }

  /** What it delivered last may be given back. */
  killed(process: GatewayProcess): void {
    for (const recent of this.#recent.filter(isRecent)) {
      if (recent.process === process) recent.wallet.model.doubt(recent.attempt);
    }
  }

  /** Repeats nothing of what was sent so far: signatures expire. */
  forget(): void {
    for (const requests of [this.#spends, this.#refused, this.#deposits]) requests.length = 0;
  }

  /** Reads the balance. */
  async read(wallet: ClientWallet, gateway: number): Promise<void> {
    const path = `/x402/accounts/${wallet.account.address}`;
    const call = wallet.sign(path, {}, { nonce: wallet.nextNonce, expiry: soon(), max: 0n });
    const answered = wallet.model.beginRead();
    answered(await this.#send(gateway, path, call));
    this.tally.read += 1;
  }

  async #spend(request: SpendRequest, gateway: number): Promise<void> {
    const { wallet, nonce, price, max, path, call, fault, audio } = request;
    const answered = wallet.model.beginSpend(nonce, price, max);
    this.#spends.push(request);
    const target = this.#target(gateway);
    const reply = await this.#sendTo(target, path, call);
    const { attempt, end } = answered(reply);
    this.tally[end] += 1;
    if (end === 'refused') this.#refused.push(request);
    if (end !== 'charged') return;
    if (target.isKilled) wallet.model.doubt(attempt);
    this.#recent = this.#recent.filter(isRecent);
    this.#recent.push({ wallet, attempt, process: target, at: performance.now() });
    assert.equal(fault, 'fine', 'charged for what the provider did not speak');
    assert.ok(reply?.bytes.equals(audio), 'the audio of another text');
  }

  async #mutate(
    { path, call, wallet }: SpendRequest,
    what: Extract<Operation, { kind: 'mutate' }>['what'],
    gateway: number,
  ) {
    const headers = call.headers as Record<string, string>;
    const header = (name: string) => headers[`x-x402-${name}`] as string;
    const change = (name: string, value: string) => ({ ...call, headers: { ...headers, [`x-x402-${name}`]: value } });
    const other = this.#wallets.find((candidate) => candidate !== wallet) as ClientWallet;
    const send = (changedPath: string, changed: Call) => this.#send(gateway, changedPath, changed);
    const reply = await (() => {
      switch (what) {
        case 'request':
          return call.method === 'POST' ? send(path, { ...call, body: `${call.body} ` }) : send(`${path}&x=1`, call);
        case 'nonce':
          return send(path, change('nonce', `${header('nonce')}x`));
        case 'expiry':
          return send(path, change('expiry', String(Number(header('expiry')) + 1)));
        case 'max-amount':
          return send(path, change('max-amount', String(BigInt(header('max-amount')) + 1n)));
        case 'account':
          return send(path, change('account', other.account.address));
        case 'signature':
          return send(path, change('signature', otherDigit(header('signature'))));
      }
    })();
    if (!reply) return;
    assert.equal(reply.status, 401, `a changed ${what} is answered ${reply.status}: ${reply.text}`);
    this.tally.unauthorized += 1;
  }

  async #deposit({ wallet, identifier, amount, call }: DepositRequest, gateway: number): Promise<void> {
    const answered = wallet.model.beginDeposit(identifier, amount);
    const reply = await this.#send(gateway, '/x402/deposit', call);
    answered(reply);
    if (!reply) this.tally['lost deposit'] += 1;
    else if (reply.status === 200) this.tally[reply.json.alreadyCredited ? 'repeated' : 'credited'] += 1;
  }

  #challenge(amount: number, call: Call, gateway: number): Promise<PaymentRequired> {
    let challenge = this.#challenges.get(amount);
    if (!challenge) {
      challenge = this.#ask(call, gateway);
      this.#challenges.set(amount, challenge);
    }
    return challenge;
  }

  async #ask(call: Call, gateway: number): Promise<PaymentRequired> {
    const reply = await this.#send(gateway, '/x402/deposit', call);
    return reply ? decodeHeader(reply.headers.get('payment-required')) : this.#ask(call, gateway);
  }

  #send(gateway: number, path: string, call: Call): Promise<Reply | undefined> {
    return this.#sendTo(this.#target(gateway), path, call);
  }

  #target(gateway: number): GatewayProcess {
    const living = this.#processes.filter(({ isKilled }) => !isKilled);
    const target = living[gateway % living.length];
    assert.ok(target, 'no process lives');
    return target;
  }

  /** Undefined when the process died; every other failure is one. */
  async #sendTo(target: GatewayProcess, path: string, call: Call): Promise<Reply | undefined> {
    try {
      return await send(target.url, path, call);
    } catch (error) {
      if (error instanceof AssertionError || !target.isKilled) throw error;
      return undefined;
    }
  }

  #wallet(index: number): ClientWallet {
    return this.#wallets[index] as ClientWallet;
  }
}

function makeSpend(wallet: ClientWallet, nonce: string, terms: SpendTerms): SpendRequest {
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
const latest = <T>(requests: readonly T[], back: number): T | undefined => requests.at(-1 - back);

/** A process tells every second what it has delivered; a busy machine takes longer. */
const RECENT_MS = 5_000;
const isRecent = ({ at }: { readonly at: number }): boolean => performance.now() - at < RECENT_MS;

const soon = (): bigint => BigInt(Math.floor(Date.now() / 1000) + EXPIRY_SECONDS);

/** The signature with its last digit of s changed. */
function otherDigit(signature: string): string {
  const digit = signature.at(-3) === '0' ? '1' : '0';
  return `${signature.slice(0, -3)}${digit}${signature.slice(-2)}`;
}

/** Waits for the wallet's turn when it takes turns. */
async function inTurn(wallet: ClientWallet, work: () => Promise<void>): Promise<void> {
  if (!wallet.isSerial) return work();
  const before = wallet.turn;
  const done = before.then(work);
  wallet.turn = done.catch(() => {});
  return done;
}
