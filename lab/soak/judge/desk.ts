import type pg from 'pg';
import { openPool } from '../../../src/db/database.ts';
import { ASSET } from '../../../src/sandbox/chain/chain-client.ts';
import { usdCoinAbi } from '../../../src/sandbox/chain/fund.ts';
import { readTold } from '../told-log.ts';
import type { PartName, Service } from '../world/world.ts';

const ROWS_AT_ONCE = 5_000;
/** More blocks in one request would exceed the node's timeout. */
const BLOCKS_AT_ONCE = 1_000n;

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
    async function* rows() {
      let id = 0;
      for await (const { number, from, until, ...told } of readTold(path)) {
        const { payer, jobId, sessionId, nonce } = told.keys;
        yield {
          ...{ id: id++, caller: told.caller, number, flow: told.flow, ended: told.end, payer, nonce, keys: told.keys },
          ...{ amount: String(told.amountMicroUsd), job_id: jobId, session_id: sessionId, wrong: told.wrong },
          ...{ begun_at: from, ended_at: until, at: told.at / 1000, served_by: told.servedBy },
        };
      }
    }
    await this.#lay(
      'told',
      `id integer, caller text, number integer, flow text, ended text, amount bigint, payer text, job_id text,
       session_id text, nonce text, wrong text, begun_at double precision, ended_at double precision,
       at double precision, served_by text, keys jsonb`,
      rows(),
    );
    await this.query('create index on pg_temp.told (payer, amount)');
    await this.query(`
      create temp table told_trace as
      select id as told, jsonb_array_elements_text(keys -> 'traceIds') as trace_id from told`);
    await this.query('create index on pg_temp.told_trace (trace_id)');
    await this.query('analyze pg_temp.told_trace');
  }

  /** Table `session`: the processor's sessions. */
  async laySessions({ processor }: Service): Promise<void> {
    const rows = (await processor.sessions()).map(({ id, isPaid, amountCents, takenBackCents }) => ({
      ...{ id, is_paid: isPaid, cents: amountCents, taken_back_cents: takenBackCents },
    }));
    await this.#lay('session', 'id text, is_paid boolean, cents integer, taken_back_cents integer', rows);
  }

  /** Table `received`: USDC that the payee received, with the nonce of its authorization. */
  async layChain({ chain, payTo }: Service): Promise<void> {
    const head = await chain.getBlockNumber();
    const rows = [];
    for (let fromBlock = 0n; fromBlock <= head; fromBlock += BLOCKS_AT_ONCE) {
      const events = { address: ASSET, abi: usdCoinAbi, fromBlock, toBlock: fromBlock + BLOCKS_AT_ONCE - 1n } as const;
      const uses = await chain.getContractEvents({ ...events, eventName: 'AuthorizationUsed' });
      const nonces = new Map(uses.map(({ transactionHash, args }) => [transactionHash, args.nonce]));
      const transfers = await chain.getContractEvents({ ...events, eventName: 'Transfer', args: { to: payTo } });
      for (const { transactionHash, args } of transfers) {
        rows.push({
          ...{ transaction_hash: transactionHash, payer: args.from?.toLowerCase(), amount: String(args.value) },
          nonce: nonces.get(transactionHash),
        });
      }
    }
    await this.#lay('received', 'transaction_hash text, payer text, amount bigint, nonce text', rows);
  }

  /** Table `audio`: objects in the audio store. */
  async layAudio(world: Service): Promise<void> {
    const prefix = new URL(world.env.AUDIO_STORE ?? '').pathname.slice(1);
    const objects = [...(await world.audioObjects())].map(([key, size]) => ({
      key: key.slice(prefix.length + 1),
      size,
    }));
    await this.#lay('audio', 'key text, size bigint', objects);
    await this.query('create index on pg_temp.audio (key)');
  }

  /** Table `death`: when gateways were killed or frozen, or PostgreSQL was killed, in Unix seconds. */
  async layDeaths(deaths: readonly Death[]): Promise<void> {
    const rows = deaths.map(({ gateway, from, until }) => ({
      ...{ gateway, begun_at: from / 1000, ended_at: until / 1000 },
    }));
    await this.#lay('death', 'gateway text, begun_at double precision, ended_at double precision', rows);
  }

  async close(): Promise<void> {
    this.#client.release(true);
    await this.#pool.end();
  }

  async #lay(table: string, columns: string, rows: AsyncIterable<object> | Iterable<object>): Promise<void> {
    await this.query(`drop table if exists pg_temp.${table} cascade`);
    await this.query(`create temp table ${table} (${columns})`);
    const put = (batch: readonly object[]) =>
      this.#client.query(
        `insert into pg_temp.${table} select * from jsonb_populate_recordset(null::pg_temp.${table}, $1)`,
        [JSON.stringify(batch)],
      );
    let batch: object[] = [];
    for await (const row of rows) {
      batch.push(row);
      if (batch.length < ROWS_AT_ONCE) continue;
      await put(batch);
      batch = [];
    }
    await put(batch);
    await this.query(`analyze pg_temp.${table}`);
  }
}
