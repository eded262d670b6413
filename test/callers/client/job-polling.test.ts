import { AsyncLocalStorage } from 'node:async_hooks';
import { test } from 'tap';
import { cardCredits, ServiceError, Speechgate } from '../../../src/callers/client/index.ts';
import { errorOf, ONE_MODEL } from '../../support/client.ts';

test('a job is polled less and less often, and not before Retry-After', async (t) => {
  const pauses: number[] = [];
  // Clients of other tests may run in this process too.
  const own = new AsyncLocalStorage<boolean>();
  const { setTimeout: wait } = globalThis;
  let asked = 0;
  const send: typeof fetch = async (input) => {
    const { pathname } = new URL((input as Request).url);
    if (pathname === '/tts/models') return Response.json(ONE_MODEL);
    if (pathname === '/tts') return Response.json({ jobId: 'a', traceId: 'a' }, { status: 202 });
    if (pathname !== '/tts/jobs/a') return Response.json({});
    asked += 1;
    if (asked === 11) return Response.json({}, { status: 429, headers: { 'retry-after': '7' } });
    if (asked === 12) return Response.json({ status: 'failed', traceId: 'a', links: {}, error: { code: 'NO' } });
    return Response.json({ status: 'processing', traceId: 'a', links: {} });
  };
  t.intercept(globalThis, 'setTimeout', {
    value: (...[run, ms = 0, ...rest]: Parameters<typeof setTimeout>) => {
      const isPause = own.getStore() && asked > 0 && /\bat pause \(/.test(String(new Error().stack));
      if (isPause) pauses.push(Math.floor(ms));
      return wait(run, isPause ? 0 : ms, ...rest);
    },
  });
  const client = new Speechgate({
    baseUrl: 'https://speech.example',
    pay: cardCredits('a'),
    timeoutMs: 0,
    fetch: send,
  });
  const error = await errorOf(own.run(true, () => client.speak({ text: 'Hello' }, { durable: true })));
  t.ok(error instanceof ServiceError);
  t.equal(asked, 12);
  t.strictSame(pauses, [250, 375, 562, 843, 1265, 1898, 2847, 4000, 4000, 4000, 11_000]);
});
