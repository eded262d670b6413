import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Database } from '../db/database.ts';
import { type FeedbackContent, payloadSha256 } from './content.ts';

/** Binds a wallet's signature to one piece of feedback, once, for a time. */
export interface Challenge {
  readonly wallet: string;
  readonly payloadSha256: string;
  readonly nonce: string;
  readonly issuedAt: Date;
  readonly expiresAt: Date;
}

/** A challenge for this content from now on, by the database's clock, which judges its end too. Nothing is stored. */
export async function issueChallenge(db: Database, content: FeedbackContent, ttlSeconds: number): Promise<Challenge> {
  const { rows } = await sql<{ now: Date }>`select clock_timestamp() as now`.execute(db);
  const issuedAt = rows[0]?.now as Date;
  return {
    wallet: content.wallet,
    payloadSha256: payloadSha256(content),
    nonce: randomUUID(),
    issuedAt,
    expiresAt: new Date(issuedAt.getTime() + ttlSeconds * 1000),
  };
}
