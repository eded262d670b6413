import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { payQuoted } from '../../../lab/soak/callers/direct.ts';
import { Line, type Sent } from '../../../lab/soak/callers/line.ts';
import { errorOf, Operation } from '../../../lab/soak/callers/operation.ts';
import { FAULTS, turnOf } from '../../../lab/soak/faults/schedule.ts';
import { BREAKS } from '../../../lab/soak/links/breaks.ts';
import { startHttpLink } from '../../../lab/soak/links/http-link.ts';
import { Random } from '../../../lab/soak/random.ts';
import { testChain } from '../../support/chain.ts';
import { keyedWallet } from '../../support/keyed-wallet.ts';
import { listensFor } from '../../support/listening.ts';
import { until } from '../../support/until.ts';
import { startX402Gateway } from '../../support/x402.ts';

const { skip, chain } = await testChain();

const ANSWER = 'an answer of some length';

/** A part that counts what it is asked, behind a link. */
async function linkedPart(t: Test) {
  let asked = 0;
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      asked += 1;
      response.writeHead(200, { 'content-type': 'text/plain' }).end(ANSWER);
    });
  }).listen(0, '127.0.0.1');
  await listensFor(t, server);
  const link = await startHttpLink(t, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  /** The answer's status and text, or that there is no whole one. */
  const ask = async (path = '/settle') => {
    try {
      const answer = await fetch(link.origin + path, { method: 'POST', body: 'a question' });
      return [answer.status, await answer.text()] as const;
    } catch {
      return 'broken' as const;
    }
  };
  return { link, ask, asked: () => asked };
}

test('a link passes everything on unchanged by default', async (t) => {
  const { link, ask, asked } = await linkedPart(t);
  assert.deepEqual(await ask(), [200, ANSWER]);
  assert.deepEqual([asked(), link.requests], [1, 1]);
});

const WHOLE = [200, ANSWER] as const;
const seen: Readonly<Record<string, readonly [unknown, times: number]>> = {
  'late requests': [WHOLE, 1],
  'late answers': [WHOLE, 1],
  'lost requests': ['broken', 0],
  'lost answers': ['broken', 1],
  'half answers': ['broken', 1],
  'requests made twice': [WHOLE, 2],
  'requests that hang': ['broken', 0],
  'answers that hang': ['broken', 1],
};

for (const { name, begin } of BREAKS) {
  test(`a broken link causes ${name}`, async (t) => {
    const { link, ask, asked } = await linkedPart(t);
    const over = new AbortController();
    link.breaker = begin(new Random('links', name), once(over.signal, 'abort'));
    const answered = ask();
    if (name.endsWith('hang')) {
      const isFirst = await Promise.race([answered.then(() => 'answered'), untilAsked(link).then(() => 'hangs')]);
      assert.equal(isFirst, 'hangs');
    }
    over.abort();
    const answer = await answered;
    const expected = seen[name];
    if (expected) assert.deepEqual([answer, asked()], expected);
    else assert.deepEqual([Number(answer[0]) >= 429, asked()], [true, name === 'failures' ? 0 : 1]);
    link.breaker = undefined;
    assert.deepEqual(await ask(), WHOLE);
  });
}

async function untilAsked(link: { readonly requests: number }): Promise<void> {
  while (link.requests === 0) await new Promise(setImmediate);
}

test('a soak caller replaces a quote that expires before use', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_TTL_SECONDS: '1' });
  const line = new Line('gateway one', gateway.url);
  t.teardown(() => line.close());
  const quotes: string[] = [];
  const ask = async (sent: Sent, timeoutMs: number) => {
    const heard = await line.ask(sent, timeoutMs);
    if (!sent.path.endsWith('/quote')) return heard;
    const { quoteToken } = JSON.parse(heard.body.toString());
    quotes.push(quoteToken);
    const use = { ...sent, path: '/x402/tts', body: JSON.stringify({ quoteToken }) };
    const isExpired = async () => errorOf(await line.ask(use, timeoutMs))?.code === 'QUOTE_EXPIRED';
    if (quotes.length === 1) await until(isExpired);
    return heard;
  };
  const operation = new Operation(new Random('quoted'), [{ ask }, { ask }]);
  const payment = await payQuoted(operation, keyedWallet(Buffer.alloc(32, 7)), 'Hello world');
  assert.ok(quotes.length > 1);
  assert.equal(JSON.parse(payment?.sent.body ?? '{}').quoteToken, quotes.at(-1));
  assert.equal(payment?.challenge.accepts[0]?.amount, '198');
});

const namesOf = (seed: string, number: number) => turnOf(seed, number).faults.map(({ name }) => name);

test("the faults of a turn follow from the seed and the turn's number alone", async () => {
  const first = Array.from({ length: 200 }, (_, number) => namesOf('a', number));
  const backwards = Array.from({ length: 200 }, (_, index) => namesOf('a', 199 - index)).reverse();
  assert.deepEqual(backwards, first);
  assert.notDeepEqual(
    Array.from({ length: 200 }, (_, number) => namesOf('b', number)),
    first,
  );
});

test('no two faults of a turn share a target, and every fault occurs', async () => {
  const drawn = new Set<string>();
  for (let number = 0; number < 20_000; number++) {
    const { faults } = turnOf('turns', number);
    assert.equal(new Set(faults.map(({ target }) => target)).size, faults.length);
    for (const { name } of faults) drawn.add(name);
  }
  assert.deepEqual([...drawn].sort(), [...new Set(FAULTS.map(({ name }) => name))].sort());
  assert.equal(drawn.size, FAULTS.length);
});
