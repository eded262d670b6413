import { mock } from 'node:test';
import { pino } from 'pino';
import { test } from 'tap';
import { readConfig } from '../../src/config/config.ts';
import { PrepaidAudioStore } from '../../src/payments/prepaid/prepaid-balance.ts';
import { CHARGED, concluded, detailsOf, startWithFunds } from '../support/lost-answer.ts';
import { HELLO, TTS } from '../support/prepaid.ts';

type Parts = ConstructorParameters<typeof PrepaidAudioStore>[0];

test('R60: so much of the audio of each minute is kept', async (t) => {
  t.teardown(() => mock.timers.reset());
  mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const kept: string[] = [];
  const parts = {
    store: { dated: { prepaid: { put: async (id: string) => void kept.push(id) } } },
    work: { add: () => {} },
    maxBytesPerMinute: 10,
  };
  const audio = new PrepaidAudioStore(parts as unknown as Parts);
  const log = pino({ level: 'silent' });
  const keep = (id: string, bytes: number) => audio.store(id, Buffer.alloc(bytes), log);
  keep('first', 7);
  keep('too much', 4);
  keep('fits', 3);
  keep('full', 1);
  mock.timers.setTime(1_800_000_060_000);
  keep('next minute', 10);
  keep('full again', 1);
  t.strictSame(kept, ['first', 'fits', 'next minute']);
});

test('R60: in a bucket nothing is kept, unless a setting turns it on', async (t) => {
  const bytesOf = (env: Record<string, string>) => {
    const result = readConfig({ DATABASE_URL: 'postgres://localhost/x', AUDIO_STORE: 's3://voices', ...env });
    return result.outcome === 'read' && result.config.jobs.prepaidAudioBytes;
  };
  t.equal(bytesOf({}), 0);
  t.equal(bytesOf({ PREPAID_AUDIO_MIB_PER_MINUTE: '2' }), 2 * 1024 * 1024);
});

test('R60: where no audio is kept, a repetition is told its charge', async (t) => {
  const { gateway, sign } = await startWithFunds(t, { PREPAID_AUDIO_MIB_PER_MINUTE: '0' });
  const call = await sign(TTS, HELLO);
  t.equal((await gateway.call(TTS, call)).status, 200);
  t.strictSame(detailsOf(await concluded(gateway, call)), CHARGED);
});
