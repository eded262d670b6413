import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import type { Test } from 'tap';
import { audit } from '../../src/ledger/audit.ts';
import { startChild } from './child.ts';
import { startGateway } from './gateway.ts';
import { later, untilJob } from './jobs.ts';
import { letLeasesEnd } from './kill.ts';
import { longCatalog, longText } from './long-texts.ts';
import { runTurn } from './reconcile.ts';
import { body, openAiError, silentMp3, testUpstream } from './stub-upstream.ts';

export const FUNDS = 5_000_000n;
/** The price of a character. */
export const RATE = 18n;
/** Characters of one request to the upstream. */
export const LIMIT = 500;
/** Started by `startChild`, with `workerEnv`. */
export const WORKER = 'test/support/worker-process.ts';

/** A gateway whose worker stands still until it is started, and the settings of another process. */
export async function startLongJobs(t: Test, more: Record<string, string> = {}, limit = LIMIT) {
  const upstream = await testUpstream(t);
  const env = { SPEECH_BASE_URL: upstream.url, CATALOG_FILE: await longCatalog(t, limit) };
  const gateway = await startGateway(t, { ...env, ...more });
  const { audioStore } = gateway.config.jobs;
  const workerEnv = { ...env, DATABASE_URL: gateway.databaseUrl, AUDIO_STORE: audioStore };
  const account = await gateway.fund(500);
  const takeOver = async () => {
    await letLeasesEnd(gateway.db);
    assert.equal((await runTurn(gateway, 'lost_jobs')).outcome, 'done');
  };
  return {
    upstream,
    gateway,
    workerEnv,
    account,
    accept: async (text: string, query = '') => (await later(gateway, account, { text, query })).json.jobId as string,
    end: async (jobId: string) => (await untilJob(gateway, jobId, 'completed', 'failed')).json,
    takeOver,
    resume: async () => {
      await takeOver();
      gateway.app.worker?.start();
    },
    /** How many objects are stored. */
    stored: async () => {
      const names = await readdir(join(gateway.config.dataDir, 'audio'), { recursive: true }).catch(() => []);
      return names.filter((name) => name.includes('/')).length;
    },
    expire: async () => assert.equal((await runTurn(gateway, 'expired_audio')).outcome, 'done'),
  };
}

export const inputsOf = ({ requests }: { requests: readonly { body: Record<string, unknown> | undefined }[] }) =>
  requests.flatMap(({ body }) => (body ? [String(body.input)] : []));

/** Random failures and kills of a job's workers: each time it ends charged and complete, or failed and not charged. */
export async function liveThrough(t: Test, numRuns: number): Promise<void> {
  const { upstream, gateway, workerEnv, account, accept, takeOver, end, stored, expire } = await startLongJobs(t);
  const history = fc.record({
    kills: fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 2 }),
    failEvery: fc.integer({ min: 3, max: 15 }),
    refused: fc.option(fc.integer({ min: 1, max: 60 })),
  });
  await fc.assert(
    fc.asyncProperty(history, async ({ kills, failEvery, refused }) => {
      await expire();
      const [balance, before] = [await gateway.balance(account), await stored()];
      const isRefused = (input: unknown) => refused !== null && String(input).includes(`number ${refused} `);
      upstream.mode = (request, response) => {
        const mode = isRefused(request.body?.input) ? openAiError(400) : openAiError(500);
        const isGood = upstream.requests.length % failEvery !== 0 && !isRefused(request.body?.input);
        (isGood ? body(silentMp3(1_000)) : mode)(request, response);
      };
      const jobId = await accept(longText(3_000));
      for (const requests of kills) {
        const victim = startChild(t, WORKER, workerEnv);
        await Promise.race([upstream.waitForRequests(upstream.requests.length + requests), end(jobId)]);
        await victim.stop('SIGKILL');
        await takeOver();
      }
      const worker = startChild(t, WORKER, workerEnv);
      const job = await end(jobId);
      await worker.stop();
      assert.equal(job.status, refused === null ? 'completed' : 'failed');
      assert.equal(await gateway.balance(account), job.status === 'completed' ? balance - 3_000n * RATE : balance);
      if (job.status === 'completed') {
        const { bytes } = await gateway.call(new URL(job.links.audio).pathname);
        assert.equal(bytes.length, job.result.sizeBytes);
      }
      await expire();
      const kept = job.status === 'completed' ? (await segmentsOf(jobId)) + 1 : 0;
      assert.equal(await stored(), before + kept);
      assert.deepEqual(await audit(gateway.db), []);
    }),
    { numRuns, endOnFailure: true },
  );

  async function segmentsOf(jobId: string): Promise<number> {
    const rows = gateway.db.selectFrom('job_segment').where('job_id', '=', jobId).where('frames', '>', 0);
    return (await rows.selectAll().execute()).length;
  }
}
