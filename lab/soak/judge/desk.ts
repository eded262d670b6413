import type pg from 'pg';
import { openPool } from '../../../src/db/database.ts';
import { ASSET } from '../../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../../src/sandbox/chain/fund.ts';
import { readTold } from '../told-log.ts';
import type { PartName, World } from '../world/world.ts';

const ROWS_AT_ONCE = 5_000;
/** More blocks in one request would exceed the node's timeout. */
const BLOCKS_AT_ONCE = 1_000n;

type Columns = readonly (readonly [name: string, type: string])[];

/** When a gateway was killed or frozen, in Unix milliseconds. */
export interface Death {
  readonly gateway: PartName;
  readonly from: number;
  readonly until: number;
}

/**
 * A database session with temporary tables for the records of callers, chain, processor and audio store. Joins compare
 * these with the books, which is fast enough for a million operations.
 */
export class Desk {
  readonly #pool: pg.Pool;
  readonly #client: pg.PoolClient;

  private constructor(pool: pg.Pool, client: pg.PoolClient) {
    this.#pool = pool;
    this.#client = client;
  }

  static async open(databaseUrl: string): Promise<Desk> {
    const pool = openPool(databaseUrl, { maxConnections: 1, statementTimeoutMs: 0 });
    return new Desk(pool, await pool.connect());
  }

  async query<Row extends pg.QueryResultRow>(text: string): Promise<Row[]> {
    return (await this.#client.query<Row>(text)).rows;
  }

  /** Table `told`: the callers' records, with ids in the order of their ends. */
  async layTold(path: string): Promise<void> {
    const columns = [
      ...[['id', 'integer'] as const, ['caller', 'text'] as const, ['number', 'integer'] as const],
      ...[['flow', 'text'] as const, ['ended', 'text'] as const, ['amount', 'bigint'] as const],
      ...[['payer', 'text'] as const, ['job_id', 'text'] as const, ['session_id', 'text'] as const],
      ...[['nonce', 'text'] as const, ['wrong', 'text'] as const],
      ...[['begun_at', 'double precision'] as const, ['ended_at', 'double precision'] as const],
      ...[['at', 'double precision'] as const, ['served_by', 'text'] as const, ['keys', 'jsonb'] as const],
    ];
    async function* rows() {
      let id = 0;
      for await (const { keys, ...told } of readTold(path)) {
        const { payer, jobId, sessionId, nonce } = keys;
        yield [
          ...[id++, told.caller, told.number, told.flow, told.end, told.amountMicroUsd, payer, jobId, sessionId, nonce],
          ...[told.wrong, told.from, told.until, told.at / 1000, told.servedBy, JSON.stringify(keys)],
        ];
      }
    }
    await this.#lay('told', columns, rows());
    await this.query('create index on pg_temp.told (payer, amount)');
    await this.query(`
      create temp table told_trace as
      select id as told, jsonb_array_elements_text(keys -> 'traceIds') as trace_id from told`);
    await this.query('create index on pg_temp.told_trace (trace_id)');
    await this.query('analyze pg_temp.told_trace');
  }

  /** Table `session`: the processor's sessions. */
  async laySessions({ processor }: World): Promise<void> {
    const sessions = await processor.sessions();
    const columns = [
      ...[['id', 'text'] as const, ['is_paid', 'boolean'] as const],
      ...[['cents', 'integer'] as const, ['taken_back_cents', 'integer'] as const],
    ];
    const rows = sessions.map(({ id, isPaid, amountCents, takenBackCents }) => [
      ...[id, isPaid, amountCents, takenBackCents],
    ]);
    await this.#lay('session', columns, rows);
  }

  /** Table `received`: USDC that the payee received, with the nonce of its authorization. */
  async layChain({ chain, payTo }: World): Promise<void> {
    const head = await chain.getBlockNumber();
    const rows = [];
    for (let fromBlock = 0n; fromBlock <= head; fromBlock += BLOCKS_AT_ONCE) {
      const events = { address: ASSET, abi: usdCoinAbi, fromBlock, toBlock: fromBlock + BLOCKS_AT_ONCE - 1n } as const;
      const uses = await chain.getContractEvents({ ...events, eventName: 'AuthorizationUsed' });
      const nonces = new Map(uses.map(({ transactionHash, args }) => [transactionHash, args.nonce]));
      const transfers = await chain.getContractEvents({ ...events, eventName: 'Transfer', args: { to: payTo } });
      for (const { transactionHash, args } of transfers) {
        rows.push([transactionHash, args.from?.toLowerCase(), args.value, nonces.get(transactionHash)]);
      }
    }
    const columns = [
      ...[['transaction_hash', 'text'] as const, ['payer', 'text'] as const],
      ...[['amount', 'bigint'] as const, ['nonce', 'text'] as const],
    ];
    await this.#lay('received', columns, rows);
  }

  /** Table `audio`: objects in the audio store. */
  async layAudio(world: World): Promise<void> {
    const prefix = new URL(world.env.AUDIO_STORE ?? '').pathname.slice(1);
    const objects = [...(await world.audioObjects())].map(([key, size]) => [key.slice(prefix.length + 1), size]);
    await this.#lay('audio', [['key', 'text'] as const, ['size', 'bigint'] as const], objects);
    await this.query('create index on pg_temp.audio (key)');
  }

  /** Table `death`: when gateways were killed or frozen, or PostgreSQL was killed, in Unix seconds. */
  async layDeaths(deaths: readonly Death[]): Promise<void> {
    const columns = [
      ...[['gateway', 'text'] as const],
      ...[['begun_at', 'double precision'] as const, ['ended_at', 'double precision'] as const],
    ];
    await this.#lay(
      'death',
      columns,
      deaths.map(({ gateway, from, until }) => [gateway, from / 1000, until / 1000]),
    );
  }

  async close(): Promise<void> {
    this.#client.release(true);
    await this.#pool.end();
  }

  async #lay(
    table: string,
    columns: Columns,
    rows: AsyncIterable<readonly unknown[]> | Iterable<readonly unknown[]>,
  ): Promise<void> {
    await this.query(`drop table if exists pg_temp.${table} cascade`);
    await this.query(`create temp table ${table} (${columns.map((column) => column.join(' ')).join(', ')})`);
    const placed = columns.map(([, type], index) => `$${index + 1}::${type}[]`).join(', ');
    const put = async (batch: readonly (readonly unknown[])[]) => {
      const values = columns.map((_, index) => batch.map((row) => row[index] ?? null));
      await this.#client.query(`insert into pg_temp.${table} select * from unnest(${placed})`, values);
    };
    let batch: (readonly unknown[])[] = [];
    for await (const row of rows) {
      batch.push(row);
      if (batch.length < ROWS_AT_ONCE) continue;
      await put(batch);
      batch = [];
    }
    if (batch.length > 0) await put(batch);
    await this.query(`analyze pg_temp.${table}`);
  }
}
