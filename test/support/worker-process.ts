/**
 * A job worker on DATABASE_URL in a process of its own, which SIGTERM stops: `src/main.ts --role=worker` without what
 * takes it seconds to load. It gives running jobs back at once when it is stopped.
 */
import { pino } from 'pino';
import { loadCatalog } from '../../src/config/catalog.ts';
import { openDatabase } from '../../src/db/database.ts';
import { JobWorker } from '../../src/jobs/run-job.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { openProvider } from '../../src/speech/open-provider.ts';
import { openAudioStore } from '../../src/speech/store/open-store.ts';

const { DATABASE_URL = '', AUDIO_STORE = '', SPEECH_BASE_URL } = process.env;
const log = pino({ level: 'warn' });
const metrics = new Metrics();
const timeoutMs = 45_000;
const settings = { baseUrl: SPEECH_BASE_URL, apiKey: undefined, servers: [], timeoutMs };
const speech = openProvider(settings, loadCatalog(), { metrics, log });
const db = openDatabase(DATABASE_URL, { maxConnections: 4 });
const store = openAudioStore(AUDIO_STORE);
const worker = new JobWorker({
  db,
  databaseUrl: DATABASE_URL,
  namedStatements: true,
  concurrency: 2,
  retentionSeconds: 3_600,
  stopTimeoutMs: 0,
  provider: speech.provider,
  timeoutMs,
  store,
  metrics,
  log,
});
worker.start();
process.once('SIGTERM', async () => {
  await worker.stop();
  await Promise.all([speech.close(), store.close(), db.destroy()]);
});
