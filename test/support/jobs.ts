import type { Gateway, Reply } from './gateway.ts';
import { until } from './until.ts';

/** Asks for a job until its state is one of these, or the answer is not 200. */
export async function untilJob(gateway: Pick<Gateway, 'call'>, jobId: string, ...states: string[]): Promise<Reply> {
  let reply: Reply | undefined;
  await until(async () => {
    reply = await gateway.call(`/tts/jobs/${jobId}`);
    return reply.status !== 200 || states.includes(reply.json.status);
  });
  return reply as Reply;
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
    headers: { 'x-credit-account': account, ...(options.key !== undefined && { 'idempotency-key': options.key }) },
  });
}
