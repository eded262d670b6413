import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { DEFAULT_MAX_REQUEST_CHARACTERS } from '../../src/config/catalog-upstreams.ts';
import { longText } from '../../test/support/long-texts.ts';
import { MP3_FRAME_BYTES } from '../../test/support/silent-audio.ts';
import { cpuOf } from './processes.ts';
import { AT_ONCE } from './servers/upstream.ts';
import type { Setup } from './setup.ts';
import { type Spread, spread } from './statistics.ts';
import { accountId, LONG_JOB_CHARACTERS } from './world.ts';

/** As people speak: 65 ms at 128 kbit/s. */
const FRAMES_PER_CHARACTER = 65 / 24;
const POLL_MS = 200;

export interface LongJobLine {
  readonly seconds: Spread;
  /** Of the gateway's CPU time, and of PostgreSQL's. */
  readonly charactersPerCpuSecond: Spread;
  readonly charactersPerPostgresSecond: Spread;
}

/** Measures a job of 100,000 characters, from the request to the end. */
export async function measureLongJob(
  setup: Setup,
  rounds: number,
  onProgress: (message: string) => void,
): Promise<LongJobLine> {
  const frames = Math.round(DEFAULT_MAX_REQUEST_CHARACTERS * FRAMES_PER_CHARACTER);
  await setup.speak({ ...AT_ONCE, bytes: frames * MP3_FRAME_BYTES });
  const { port, pid } = setup.target('ours');
  const measured: { seconds: number; cpu: number; postgres: number }[] = [];
  for (let round = 1; round <= rounds; round++) {
    onProgress(`a job of ${LONG_JOB_CHARACTERS} characters: ${round} of ${rounds}`);
    const [startedAt, cpuMs, postgresMs] = [performance.now(), cpuOf(pid), cpuOf(setup.books.postmaster)];
    await speak(`http://127.0.0.1:${port}`);
    const perSecond = (ms: number) => LONG_JOB_CHARACTERS / (ms / 1000);
    measured.push({
      seconds: (performance.now() - startedAt) / 1000,
      cpu: perSecond(cpuOf(pid) - cpuMs),
      postgres: perSecond(cpuOf(setup.books.postmaster) - postgresMs),
    });
  }
  return {
    seconds: spread(measured.map(({ seconds }) => seconds)),
    charactersPerCpuSecond: spread(measured.map(({ cpu }) => cpu)),
    charactersPerPostgresSecond: spread(measured.map(({ postgres }) => postgres)),
  };
}

async function speak(gateway: string): Promise<void> {
  const headers = { 'content-type': 'application/json', 'x-credit-account': accountId(0) };
  const body = JSON.stringify({ text: longText(LONG_JOB_CHARACTERS) });
  const accepted = await fetch(`${gateway}/tts`, { method: 'POST', headers, body });
  const { jobId, error } = (await accepted.json()) as { jobId?: string; error?: object };
  assert.equal(accepted.status, 202, JSON.stringify(error));
  for (;;) {
    const job = (await (await fetch(`${gateway}/tts/jobs/${jobId}`)).json()) as { status: string };
    assert.notEqual(job.status, 'failed', JSON.stringify(job));
    if (job.status === 'completed') return;
    await sleep(POLL_MS);
  }
}
