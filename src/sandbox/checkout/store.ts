import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { openOwnLog, ownFolder, readUnsharedFile, replaceOwnFile } from '../../lib/private-files.ts';
import type { BalanceTransaction } from './balance-transaction.ts';
import type { Dispute } from './dispute.ts';
import { type Payment, takePayment } from './payment.ts';
import type { Refund } from './refund.ts';
import { now, type Session } from './session.ts';

export const REPLY_LIFETIME_SECONDS = 24 * 60 * 60;

/** An answer that is given again to a call with the same Idempotency-Key. */
export interface Reply {
  readonly key: string;
  /** Of the call: a hash of method, path and body. */
  readonly fingerprint: string;
  /** Unix seconds. */
  readonly created: number;
  readonly body: unknown;
}

interface Records {
  readonly sessions: Session;
  readonly payments: Payment;
  readonly refunds: Refund;
  readonly disputes: Dispute;
  readonly transactions: BalanceTransaction;
  readonly replies: Reply;
}

const KINDS = ['sessions', 'payments', 'refunds', 'disputes', 'transactions', 'replies'] as const;

/** Records by their id (replies: by their key), oldest first. */
export type State = { readonly port: number } & {
  readonly [Kind in keyof Records]: ReadonlyMap<string, Records[Kind]>;
};

/** New records, and those that take the place of the former ones with their id. */
export type Change = { readonly port?: number } & { readonly [Kind in keyof Records]?: readonly Records[Kind][] };

/**
 * The state in one file. Its first line is all of it when the file was begun, each further line one change, so that a
 * change costs the same however much there is. Changes happen one after the other, and each is on disk before anybody
 * can see it, so that what was answered survives a kill.
 */
export class Store {
  readonly #file: string;
  readonly #state: MutableState;
  /** Where changes are appended; undefined when the file has to be begun anew first. */
  #log: FileHandle | undefined;
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(file: string, state: MutableState) {
    this.#file = file;
    this.#state = state;
  }

  static async open(file: string): Promise<Store> {
    await ownFolder(dirname(file));
    return new Store(file, await readState(file));
  }

  get state(): State {
    return this.#state;
  }

  /** Carries out what `decide` makes of the state and passes its result on. Without a change nothing is written. */
  update<Result>(decide: (state: State) => { change?: Change; result: Result }): Promise<Result> {
    const done = this.#queue.then(async () => {
      const { change, result } = decide(this.#state);
      if (change) {
        await this.#write(change);
        apply(this.#state, change);
      }
      return result;
    });
    this.#queue = done.catch(() => undefined);
    return done;
  }

  /** Ends once what was begun is on disk. */
  async close(): Promise<void> {
    await this.#queue;
    await this.#log?.close();
    this.#log = undefined;
  }

  async #write(change: Change): Promise<void> {
    const log = this.#log ?? (await this.#begin());
    try {
      await log.writeFile(`${JSON.stringify(change)}\n`);
      await log.datasync();
    } catch (error) {
      // A part of the line may be in the file.
      this.#log = undefined;
      await log.close().catch(() => undefined);
      throw error;
    }
  }

  async #begin(): Promise<FileHandle> {
    const { port, ...tables } = this.#state;
    const lists = Object.fromEntries(Object.entries(tables).map(([kind, table]) => [kind, [...table.values()]]));
    await replaceOwnFile(this.#file, `${JSON.stringify({ port, ...lists })}\n`);
    this.#log = await openOwnLog(this.#file);
    return this.#log;
  }
}

/** What the state would be with a change. This copies what it touches. */
export function withChange(state: State, change: Change): State {
  const copies = KINDS.map((kind) => [kind, change[kind] ? new Map<string, unknown>(state[kind]) : state[kind]]);
  const changed = { port: state.port, ...Object.fromEntries(copies) };
  apply(changed, change);
  return changed;
}

type MutableState = { port: number } & { readonly [Kind in keyof Records]: Map<string, Records[Kind]> };

function apply(state: MutableState, change: Change): void {
  state.port = change.port ?? state.port;
  for (const kind of KINDS) {
    const table: Map<string, unknown> = state[kind];
    for (const record of change[kind] ?? []) table.set('key' in record ? record.key : record.id, record);
  }
}

async function readState(file: string): Promise<MutableState> {
  const state: MutableState = {
    ...{ port: 0, sessions: new Map(), payments: new Map(), refunds: new Map(), disputes: new Map() },
    ...{ transactions: new Map(), replies: new Map() },
  };
  for (const change of await readChanges(file)) apply(state, change);
  for (const { key, created } of [...state.replies.values()]) {
    if (created <= now() - REPLY_LIFETIME_SECONDS) state.replies.delete(key);
  }
  // Release 2.0 kept no payments.
  for (const session of state.sessions.values()) {
    const { paymentIntent } = session;
    if (paymentIntent && !state.payments.has(paymentIntent)) {
      apply(state, takePayment(session, { id: paymentIntent, created: session.created }));
    }
  }
  return state;
}

async function readChanges(file: string): Promise<Change[]> {
  const text = await readUnsharedFile(file);
  if (text === undefined) return [];
  const lines = text.split('\n');
  // What follows the last line's end is a change that a kill has cut off. Release 2.0 wrote one line without an end.
  if (lines.length > 1) lines.pop();
  try {
    return lines.map((line) => JSON.parse(line));
  } catch {
    throw new Error(`${file} is damaged. Remove it to start without checkout sessions.`);
  }
}
