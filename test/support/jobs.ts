import { setTimeout as sleep } from 'node:timers/promises';
import type { Gateway, Reply } from './gateway.ts';

const GIVE_UP_MS = 60_000;

/** Asks for a job until its state is one of these; fails after a minute. */
export async function untilJob(gateway: Pick<Gateway, 'call'>, jobId: string, ...states: string[]): Promise<Reply> {
  for (const deadline = performance.now() + GIVE_UP_MS; ; await sleep(20)) {
    const reply = await gateway.call(`/tts/jobs/${jobId}`);
    if (reply.status !== 200 || states.includes(reply.json.status)) return reply;
    if (performance.now() > deadline) throw new Error(`the job is still ${reply.json.status}`);
  }
}

/** Sends text for asynchronous speech. */
export function later(
  gateway: Pick<Gateway, 'call'>,
  account: string,
  options: { text?: string; key?: string; query?: string; json?: object } = {},
): Promise<Reply> {
  return gateway.call(`/tts?async=true${options.query ?? ''}`, {
    method: 'POST',
    json: { text: options.text ?? 'Hello world', ...options.json },
    headers: {
      'x-credit-account': account,
      ...(options.key !== undefined && { 'idempotency-key': options.key }),
    },
  });
}
