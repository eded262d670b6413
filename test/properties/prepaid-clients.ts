import assert, { AssertionError } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { PaymentRequired } from '@x402/core/types';
import { type Call, type Reply, send } from '../support/gateway.ts';
import type { GatewayProcess } from '../support/gateway-process.ts';
import { type Mode, openAiError, resetBeforeHeaders, resetInBody, wav } from '../support/stub-upstream.ts';
import { decodeHeader, sign, withPayment } from '../support/x402.ts';
import type { Attempt, End } from './prepaid-model.ts';
import type { Fault, Operation } from './prepaid-operations.ts';
import {
  audioFor,
  type ClientWallet,
  type DepositRequest,
  isRecent,
  latest,
  makeSpend,
  otherDigit,
  type SpendRequest,
  soon,
} from './prepaid-requests.ts';

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
    ...{ charged: 0, restored: 0, refused: 0, replayed: 0, lost: 0 },
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

/** Waits for the wallet's turn when it takes turns. */
async function inTurn(wallet: ClientWallet, work: () => Promise<void>): Promise<void> {
  if (!wallet.isSerial) return work();
  const before = wallet.turn;
  const done = before.then(work);
  wallet.turn = done.catch(() => {});
  return done;
}
