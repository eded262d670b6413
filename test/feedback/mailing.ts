import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Gateway, startGateway } from '../support/gateway.ts';
import { startMailServer } from '../support/mail-server.ts';

export const mailEnv = (url: string) => ({
  SMTP_URL: url,
  FEEDBACK_FROM: 'Speechgate <from@speech.example>',
  FEEDBACK_TO: 'to@speech.example, second@speech.example',
});

export async function start(t: Test, options: { worker: boolean } = { worker: true }) {
  const server = await startMailServer(t);
  return { server, gateway: await startGateway(t, mailEnv(server.url), options) };
}

export const isMailed = async (gateway: Gateway, id: string): Promise<boolean> => {
  const row = await gateway.db
    .selectFrom('feedback')
    .select('mailed_at')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return row.mailed_at !== null;
};

/** The entries of the queue: which are being worked on, and how often they were tried. */
export const entries = async (gateway: Gateway) => {
  const { rows } = await sql<{ attempts: number; is_locked: boolean }>`
    select attempts, locked_at is not null as is_locked from graphile_worker.jobs
    where task_identifier = 'feedback-mail'`.execute(gateway.db);
  return rows;
};
