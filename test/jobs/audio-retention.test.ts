import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { test } from 'tap';
import { openAudioStore } from '../../src/audio/open-store.ts';
import type { Gateway } from '../support/gateway.ts';
import { runTurn } from '../support/reconcile.ts';
import { path, start } from './stored-audio.ts';

/** The key of a job's first owner, whose fence is 2, and the directory of that object. */
const firstKey = (jobId: string) => `jobs/${jobId}/2`;
const directoryOf = (jobId: string) => createHash('sha256').update(firstKey(jobId)).digest('hex').slice(0, 2);
const stored = (gateway: Gateway) => openAudioStore(gateway.config.jobs.audioStore);

test('audio that is gone from the store is 404, and a store that is away 503', async (t) => {
  const { gateway, complete } = await start(t);
  const { jobId, links } = await complete();
  const { fence } = await gateway.db.selectFrom('job').select('fence').executeTakeFirstOrThrow();
  await stored(gateway).delete(`jobs/${jobId}/${fence}`);
  const gone = await gateway.call(path(links.audio));
  assert.deepEqual([gone.status, gone.json.error.code], [404, 'NOT_FOUND']);
  const another = await complete();
  const away = join(gateway.config.dataDir, 'audio');
  await rm(away, { recursive: true });
  await writeFile(away, 'no directory');
  const reply = await gateway.call(path(another.links.audio));
  assert.deepEqual([reply.status, reply.json.error.code], [503, 'CONFIG_ERROR']);
  assert.ok(!reply.text.includes(gateway.config.dataDir));
});

test('after AUDIO_RETENTION_SECONDS the audio is deleted: stored is false, and the download 410', async (t) => {
  const { gateway, complete } = await start(t, { AUDIO_RETENTION_SECONDS: '3600' });
  const [old, young] = [await complete(), await complete()];
  const { rows } = await sql<{ seconds: number }>`
    select extract(epoch from audio_expires_at - completed_at)::double precision as seconds from job`.execute(
    gateway.db,
  );
  assert.deepEqual(rows, [{ seconds: 3600 }, { seconds: 3600 }]);
  const store = stored(gateway);
  assert.equal((await runTurn(gateway, 'expired_audio')).count, 0);

  // What an earlier owner stored before it died goes too.
  const { fence } = await gateway.db
    .selectFrom('job')
    .select('fence')
    .where('id', '=', old.jobId)
    .executeTakeFirstOrThrow();
  await gateway.db.updateTable('job').set({ audio_expires_at: sql<Date>`now()` }).where('id', '=', old.jobId).execute();
  await store.put(`jobs/${old.jobId}/${fence - 1}`, Buffer.from('of an earlier owner'), 'audio/mpeg');

  const isGone = async () => {
    const job = (await gateway.call(`/tts/jobs/${old.jobId}`)).json;
    assert.equal(job.status, 'completed');
    assert.deepEqual(job.result, { audioUrl: null, stored: false, mimeType: 'audio/mpeg', sizeBytes: 16_128 });
    assert.equal(job.links.audio, null);
    const audio = await gateway.call(path(old.links.audio));
    assert.deepEqual([audio.status, audio.json.error.code], [410, 'AUDIO_NOT_STORED']);
  };
  await isGone();
  assert.equal((await runTurn(gateway, 'expired_audio')).count, 1);
  assert.equal((await runTurn(gateway, 'expired_audio')).count, 0, 'once');
  assert.equal(await store.open(`jobs/${old.jobId}/${fence}`), undefined);
  assert.equal(await store.open(`jobs/${old.jobId}/${fence - 1}`), undefined);
  await isGone();
  assert.equal((await gateway.call(path(young.links.audio))).status, 200);
});

test('audio that can not be deleted keeps no other audio from being deleted, and is tried again', async (t) => {
  const { gateway, complete } = await start(t);
  const bad = await complete();
  let good = await complete();
  // Objects share 256 directories.
  while (directoryOf(good.jobId) === directoryOf(bad.jobId)) good = await complete();
  await gateway.db
    .updateTable('job')
    .set({ audio_expires_at: sql<Date>`now()` })
    .where('id', 'in', [bad.jobId, good.jobId])
    .execute();
  const directory = join(gateway.config.dataDir, 'audio', directoryOf(bad.jobId));
  await rename(directory, `${directory}.away`);
  await writeFile(directory, 'in its place');
  const first = await runTurn(gateway, 'expired_audio');
  assert.deepEqual([first.outcome, first.count], ['failed', 1]);
  assert.equal(await stored(gateway).open(firstKey(good.jobId)), undefined);
  await rm(directory);
  await rename(`${directory}.away`, directory);
  const second = await runTurn(gateway, 'expired_audio');
  assert.deepEqual([second.outcome, second.count], ['done', 1]);
  assert.equal(await stored(gateway).open(firstKey(bad.jobId)), undefined);
});
