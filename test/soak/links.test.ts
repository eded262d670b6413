import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Test, test } from 'tap';
import { BREAKS } from '../../soak/links/breaks.ts';
import { startHttpLink } from '../../soak/links/http-link.ts';
import { LIES } from '../../soak/links/lies.ts';
import { Random } from '../../soak/random.ts';

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
  await once(server, 'listening');
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
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

test('what is not broken goes through a link as it is', async (t) => {
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
  test(`a link breaks: ${name}`, async (t) => {
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

test("a facilitator's lies reach the service, also without a settlement", async (t) => {
  const { link, ask, asked } = await linkedPart(t);
  const lie = (wanted: string) =>
    LIES.facilitator.find(({ name }) => name === wanted)?.begin(new Random('lies'), Promise.resolve());
  link.breaker = lie('settled, and nothing was sent');
  const [status, text] = (await ask()) as readonly [number, string];
  assert.deepEqual([status, JSON.parse(text).success, asked()], [200, true, 0]);
  link.breaker = lie('failed, though it has settled');
  assert.equal(JSON.parse(((await ask()) as readonly [number, string])[1]).success, false);
  assert.equal(asked(), 1);
});

async function untilAsked(link: { readonly requests: number }): Promise<void> {
  while (link.requests === 0) await new Promise(setImmediate);
}
