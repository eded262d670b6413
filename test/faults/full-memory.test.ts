import { test } from 'tap';
import type { Config } from '../../src/config/config.ts';
import { audit } from '../../src/ledger/audit.ts';
import { PAYERS, PRICE } from '../support/payers.ts';
import { ControlledStream, silentMp3 } from '../support/stub-upstream.ts';
import { until } from '../support/until.ts';
import { waitingBytes } from '../support/waiting-bytes.ts';

const PIECE = silentMp3(500);

const adjust = (config: Config): Config => ({
  ...config,
  speech: config.speech && {
    ...config.speech,
    streaming: { ...config.speech.streaming, waitingBytes: PIECE.length },
  },
});

for (const name of ['prepaid', 'direct'] as const) {
  const { start, skip } = PAYERS[name];
  test(`${name}: with the audio buffer full, a new request is 503 before any hold`, { skip }, async (t) => {
    const { gateway, upstream, path, pay, paid } = await start(t, {}, adjust);
    const [first, second] = [await pay(), await pay()];
    const drip = new ControlledStream();
    upstream.mode = drip.mode;
    const served = gateway.call(path, first);
    await drip.opened;
    await drip.write(PIECE);
    await until(async () => (await waitingBytes(gateway)) === PIECE.length);
    const refused = await gateway.call(path, second);
    t.equal(refused.status, 503);
    t.equal(refused.json.error.code, 'TTS_UNAVAILABLE');
    t.ok(Number(refused.headers.get('retry-after')) > 0);
    t.equal(upstream.requests.length, 1);
    drip.end();
    t.equal((await served).status, 200);
    t.equal(await paid(), PRICE);
    t.strictSame(await audit(gateway.db), []);
  });
}
