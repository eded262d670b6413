import assert from 'node:assert/strict';
import { test } from 'tap';
import { payQuoted } from '../../soak/callers/direct.ts';
import { Line, type Sent } from '../../soak/callers/line.ts';
import { errorOf, Operation } from '../../soak/callers/operation.ts';
import { Random } from '../../soak/random.ts';
import { testChain } from '../support/chain.ts';
import { keyedWallet } from '../support/keyed-wallet.ts';
import { until } from '../support/until.ts';
import { startX402Gateway } from '../support/x402.ts';

const { skip, chain } = await testChain();

test('a caller of the soak whose quote has expired before it was used pays with a new one', { skip }, async (t) => {
  const gateway = await startX402Gateway(t, chain, { QUOTE_TTL_SECONDS: '1' });
  const line = new Line('gateway one', gateway.url);
  t.teardown(() => line.close());
  const quotes: string[] = [];
  const ask = async (sent: Sent, patienceMs: number) => {
    const heard = await line.ask(sent, patienceMs);
    if (!sent.path.endsWith('/quote')) return heard;
    const { quoteToken } = JSON.parse(heard.body.toString());
    quotes.push(quoteToken);
    const use = { ...sent, path: '/x402/tts', body: JSON.stringify({ quoteToken }) };
    const isExpired = async () => errorOf(await line.ask(use, patienceMs))?.code === 'QUOTE_EXPIRED';
    if (quotes.length === 1) await until(isExpired);
    return heard;
  };
  const operation = new Operation(new Random('quoted'), [{ ask }, { ask }]);
  const payment = await payQuoted(operation, keyedWallet(Buffer.alloc(32, 7)), 'Hello world');
  assert.ok(quotes.length > 1);
  assert.equal(JSON.parse(payment?.sent.body ?? '{}').quoteToken, quotes.at(-1));
  assert.equal(payment?.challenge.accepts[0]?.amount, '198');
});
