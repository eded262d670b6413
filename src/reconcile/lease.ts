import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { testPoint } from '../lib/test-point.ts';

/** How long a turn stays taken after its process was last heard of, by the database's clock. */
const LEASE_SECONDS = 10;
const RENEW_EVERY_MS = 3_000;

/**
 * Runs the work while this process alone has the reconciler's turn, among all processes on the database. Undefined when
 * another one has it, or the last one began less than the gap ago. A turn is taken in one statement and is kept by
 * renewals, so it needs no session, and it ends soon after its process has died or was frozen.
 *
 * A process that was frozen may find that its lease has passed and somebody else has the turn. The signal fires then;
 * what it does until it sees that must be harmless beside the other one's work.
 */
export async function withLease<T>(
  db: Database,
  name: string,
  gapMs: number,
  work: (lost: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const owner = randomUUID();
  const lost = new AbortController();
  let sureUntil = performance.now() + LEASE_SECONDS * 1000;
  if (!(await take(db, name, owner, gapMs))) return undefined;
  testPoint('turn taken');
  const renewal = setInterval(async () => {
    const begunAt = performance.now();
    if (begunAt > sureUntil) lost.abort();
    // One that fails is made up for by the next one, or the lease passes.
    const isRenewed = await renew(db, name, owner).catch(() => undefined);
    if (isRenewed) sureUntil = begunAt + LEASE_SECONDS * 1000;
    if (isRenewed === false) lost.abort();
  }, RENEW_EVERY_MS);
  try {
    return await work(lost.signal);
  } finally {
    clearInterval(renewal);
    await giveUp(db, name, owner).catch(() => {});
  }
}

const leaseEnd = sql`now() + make_interval(secs => ${LEASE_SECONDS})`;

async function take(db: Database, name: string, owner: string, gapMs: number): Promise<boolean> {
  const gap = sql`make_interval(secs => ${gapMs / 1000}::double precision)`;
  const { rows } = await sql`
    insert into reconciler (name, owner, lease_until) values (${name}, ${owner}, ${leaseEnd})
    on conflict (name) do update set started_at = now(), owner = excluded.owner, lease_until = excluded.lease_until
      where (reconciler.lease_until is null or lease_has_ended(reconciler.lease_until, ${LEASE_SECONDS}))
        and lease_has_ended(reconciler.started_at + ${gap}, ${gapMs / 1000})
    returning name`.execute(db);
  return rows.length > 0;
}

async function renew(db: Database, name: string, owner: string): Promise<boolean> {
  const { numAffectedRows } = await sql`
    update reconciler set lease_until = ${leaseEnd} where name = ${name} and owner = ${owner}`.execute(db);
  return numAffectedRows === 1n;
}

async function giveUp(db: Database, name: string, owner: string): Promise<void> {
  await sql`
    update reconciler set owner = null, lease_until = null where name = ${name} and owner = ${owner}`.execute(db);
}

/** How long ago the last turn of each reconciler began, in any process. */
export async function secondsSinceTurns(db: Database): Promise<Record<string, number>> {
  const { rows } = await sql<{ name: string; seconds: number }>`
    select name, extract(epoch from now() - started_at)::float8 as seconds from reconciler`.execute(db);
  return Object.fromEntries(rows.map(({ name, seconds }) => [name, seconds]));
}
