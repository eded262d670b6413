import type { QueryCreator } from 'kysely';
import type { Logger } from 'pino';
import type { DB } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { anyOf } from '../db/expressions.ts';
import { within } from '../lib/within.ts';
import type { OperatorAction } from './operator-action.ts';

export const FLOWS = ['card', 'jobs', 'top-up', 'direct', 'prepaid', 'deposit'] as const;
export type PausableFlow = (typeof FLOWS)[number];

export interface Pause extends OperatorAction {
  readonly flow: string;
  readonly since: Date;
}

export const listPauses = (db: Database): Promise<Pause[]> =>
  db
    .selectFrom('paused_flow')
    .select(['flow', 'since', 'operator', 'reason'])
    .orderBy('since')
    .orderBy('flow')
    .execute();

async function pausedFlows(db: Database): Promise<string[]> {
  const rows = await db.selectFrom('paused_flow').select('flow').orderBy('flow').execute();
  return rows.map(({ flow }) => flow);
}

export async function pauseFlows(
  db: Database,
  flows: readonly PausableFlow[],
  { operator, reason }: OperatorAction,
): Promise<string[]> {
  const pauses = flows.map((flow) => ({ flow, operator, reason }));
  const changes = db.with('changed', (qb) =>
    qb
      .insertInto('paused_flow')
      .values(pauses)
      .onConflict((conflict) => conflict.doNothing())
      .returning('flow'),
  );
  return record(changes, 'pause', { operator, reason });
}

export async function resumeFlows(
  db: Database,
  flows: readonly PausableFlow[],
  operatorAction: OperatorAction,
): Promise<string[]> {
  const changes = db.with('changed', (qb) =>
    qb.deleteFrom('paused_flow').where('flow', '=', anyOf(flows)).returning('flow'),
  );
  return record(changes, 'resume', operatorAction);
}

async function record(
  changes: QueryCreator<DB & { changed: { flow: string } }>,
  action: 'pause' | 'resume',
  { operator, reason }: OperatorAction,
): Promise<string[]> {
  const rows = await changes
    .insertInto('operator_action')
    .columns(['operator', 'action', 'subject', 'reason'])
    .expression(({ selectFrom, val }) =>
      selectFrom('changed')
        .select([val(operator).as('operator'), val(action).as('action')])
        .select(['flow as subject', val(reason).as('reason')]),
    )
    .returning('subject')
    .execute();
  return rows.map(({ subject }) => subject);
}

const READ_EVERY_MS = 1_000;
const STOP_TIMEOUT_MS = 1_000;

/** Paused flows, read every second. While the database is down the last result counts; at first nothing is paused. */
export class KnownPauses {
  readonly #db: Database;
  readonly #log: Logger;
  #paused: ReadonlySet<string> = new Set();
  #reading: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isDatabaseUnavailable = false;

  constructor(db: Database, log: Logger) {
    this.#db = db;
    this.#log = log;
  }

  has(flow: PausableFlow): boolean {
    return this.#paused.has(flow);
  }

  start(): void {
    this.#timer ??= setInterval(() => void this.read(), READ_EVERY_MS).unref();
  }

  /** Reads now, or joins a read that is running. Never throws. */
  read(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    if (this.#reading) await within(STOP_TIMEOUT_MS, this.#reading);
  }

  async #read(): Promise<void> {
    try {
      const paused = await pausedFlows(this.#db);
      this.#isDatabaseUnavailable = false;
      if (paused.length === this.#paused.size && paused.every((flow) => this.#paused.has(flow))) return;
      this.#paused = new Set(paused);
      this.#log.warn({ paused }, 'the flows in paused are paused by operators now; all others run');
    } catch (err) {
      if (!this.#isDatabaseUnavailable)
        this.#log.warn(
          { err },
          'failed to read from the database which flows are paused. The list that this process read last stays in use (at its start: none is paused), and it reads again every second. Fix the cause in err if other lines name the database too',
        );
      this.#isDatabaseUnavailable = true;
    }
  }
}
