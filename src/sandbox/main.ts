import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { createApp } from '../app.ts';
import { describeFaults, readConfig } from '../config/config.ts';
import type { ProviderSettings } from '../config/speech-settings.ts';
import { openDatabase } from '../db/database.ts';
import { migrate } from '../db/migrate.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { ownFolder, replaceOwnFile } from '../lib/private-files.ts';
import { stopOnce } from '../lib/stop-once.ts';
import { createLogger } from '../observability/logger.ts';
import { Metrics } from '../observability/metrics.ts';
import { openProvider } from '../speech/open-provider.ts';
import { openAudioStore } from '../speech/store/open-store.ts';
import { speakSamples } from '../speech/voice-samples.ts';
import { findAnvil } from './chain/anvil.ts';
import { startCheckout } from './checkout/checkout-server.ts';
import { type Claim, claimDatabase, claimFolder, folderFault } from './claim-folder.ts';
import { buyDemoCredit } from './demo-account.ts';
import { freePort } from './free-port.ts';
import { firstScreen, instructions, lineForPeople, readOffered } from './instructions.ts';
import { startMailSink } from './local-mail.ts';
import { findPostmaster } from './postgres/postmaster.ts';
import { startPostgres } from './postgres.ts';
import {
  dataDir,
  readUndamagedSandbox,
  removeSandboxSettings,
  type SandboxFile,
  sandboxSettings,
  setSandboxAside,
  writeSandboxFile,
  writeSandboxSettings,
} from './sandbox-file.ts';
import { sandboxKeys } from './sandbox-keys.ts';
import { startUsdc } from './usdc.ts';
import { startVoiceServer } from './voice/voice-server.ts';

const MIN_DEMO_BALANCE_MICRO_USD = 1_000_000n;
const DEMO_CREDIT_CENTS = 1000;
const PARENT_CHECK_MS = 1_000;
const STOP_TIMEOUT_MS = 60_000;
const REPEATED_SIGNAL_MS = 1_000;
const EXIT_CONFIG = 78;
const EXIT_INTERRUPTED = 130;
const MORE_FILE = 'try.txt';

const startedAt = performance.now();
const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1);
const progress = (message: string) => console.log(`${seconds().padStart(5)} s  ${message}`);

/** Closes the parts. They are in the order of starting, and close in reverse. */
const started: (() => Promise<void>)[] = [];
let running: Promise<unknown> = Promise.resolve();
let stopped: Promise<void> | undefined;
let stoppingAt = Number.POSITIVE_INFINITY;

// A closed terminal takes no more output. The stop must not fail by it.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
const stop = stopOnce({ timeoutMs: STOP_TIMEOUT_MS, logger: console }, async (error) => {
  stoppingAt = performance.now();
  if (error) console.error('The sandbox stops because of an error:', folderFault(dataDir, error) ?? error);
  progress('Stopping… Press Ctrl-C again to end the sandbox at once.');
  await stopParts();
  progress('Stopped');
});
process.on('SIGINT', () => endAtOnce());
stopWithParent();

await ownFolder(dataDir).catch(stopIfRefused);
const current = await readUndamagedSandbox(dataDir).catch(stopIfRefused);
const where = `in ${dataDir}${current ? `, at ${current.baseUrl}` : ''}`;
await keep(await step(claimFolder(dataDir)), where, 'DATA_DIR');
const before = await setSandboxAside(dataDir, current).catch(stopIfRefused);
await removeSandboxSettings(dataDir);
started.push(() => removeSandboxSettings(dataDir));
const ownUrl = process.env.SANDBOX_DATABASE_URL?.trim();
const database = ownUrl ? { url: ownUrl, nearUrl: ownUrl, home: undefined } : await embeddedDatabase();
const databaseUrl = database.url;
await keep(await step(claimDatabase(databaseUrl)), 'on the database of SANDBOX_DATABASE_URL', 'database');
progress('Migrating the database');
await step(migrate(databaseUrl));

const keys = await sandboxKeys(dataDir);
progress('Starting the local card checkout');
const checkout = await start(startCheckout({ dataDir, secretKey: keys.stripeSecretKey }), close);

progress('Starting the local mail server');
const mail = await start(startMailSink({ dataDir, onMail: (file) => console.log(`Mail arrived: ${file}`) }), close);

progress('Starting a local chain with USDC, and its facilitator');
const usdc = await start(startUsdc(dataDir, keys, progress), close);

let voiceSettings: Record<string, string> = {};
if (process.env.SPEECH_BASE_URL === undefined) {
  progress('Starting the voice, which reads English only. For other languages, set SPEECH_BASE_URL to a speech server');
  const voice = await start(startVoiceServer({ port: 0 }), close);
  voiceSettings = { SPEECH_BASE_URL: voice.baseUrl, SPEECH_API_KEY: '' };
}

progress('Starting the gateway');
const wantedPort = Number(process.env.PORT ?? 8080);
const port = await freePort(wantedPort);
const settings = sandboxSettings(process.env, {
  PORT: String(port),
  DATA_DIR: dataDir,
  DATABASE_URL: database.nearUrl,
  STRIPE_SECRET_KEY: keys.stripeSecretKey,
  STRIPE_API_BASE: checkout.origin,
  CHECKOUT_ORIGIN: checkout.origin,
  JOB_SIGNING_SECRET: keys.jobSigningSecret,
  ...usdc.env,
  ...voiceSettings,
  FEEDBACK_SECRET: keys.feedbackSecret,
  SMTP_URL: mail.url,
  FEEDBACK_FROM: 'feedback@sandbox.test',
  FEEDBACK_TO: 'operator@sandbox.test',
});
const result = readConfig({ LOG_LEVEL: 'warn', ...process.env, ...settings });
if ('faults' in result) {
  await stopBecause(describeFaults(result.faults));
  process.exit(EXIT_CONFIG);
}
const { config } = result;
let isReady = false;
const forPeople = { write: (json: string) => void process.stdout.write(lineForPeople(json, isReady)) };
const log = process.env.LOG_LEVEL ? createLogger(config.logLevel) : createLogger('info', forPeople);
let creditAccount: string | undefined;
const app = await start(createApp(config, log, { demoAccount: () => creditAccount }), close);
await step(app.server.listen({ host: config.host, port: config.port }));
if (config.adminPort !== undefined) await step(app.admin.listen({ host: config.admin.host, port: config.adminPort }));
app.worker?.start();
app.mailer?.start();

creditAccount = await step(demoAccount(before?.creditAccount));
const sandbox: SandboxFile = {
  baseUrl: config.baseUrl,
  creditAccount,
  checkoutUrl: checkout.origin,
  chain: usdc.chain,
  facilitatorUrl: usdc.facilitatorUrl,
  wallet: usdc.wallet,
  databaseUrl,
};
await step(writeSandboxSettings(dataDir, settings));
await step(writeSandboxFile(dataDir, sandbox));
const offered = await step(readOffered(config.baseUrl));
const hasScripts = existsSync(new URL('../../src', import.meta.url));
const moreFile = join(dataDir, MORE_FILE);
const places = { dataDir, databaseHome: database.home, hasScripts };
await step(replaceOwnFile(moreFile, instructions(sandbox, places, offered)));
progress('Ready');
const takenPort = wantedPort === 0 || wantedPort === port ? undefined : wantedPort;
console.log(firstScreen(sandbox, { dataDir, takenPort, moreFile }));
isReady = true;
// Of the own voice only: another one may cost money.
if (process.env.SPEECH_BASE_URL === undefined && config.speech) sampleVoices(config.speech);

/** In the background, since the first of all starts would take seconds longer. */
function sampleVoices(speech: ProviderSettings): void {
  const { provider, close } = openProvider(speech, config.catalog, { metrics: new Metrics(), log });
  const store = openAudioStore(config.jobs.audioStore);
  const stopping = new AbortController();
  const speaking = (async () => {
    for await (const _ of speakSamples(store, provider, config.catalog, stopping));
  })().catch((err) =>
    log.error({ err }, 'failed to make the voice samples, so the home page plays none. Read err for the cause'),
  );
  started.push(async () => {
    stopping.abort();
    await speaking;
    await Promise.all([close(), store.close()]);
  });
}

async function embeddedDatabase() {
  progress('Starting PostgreSQL');
  const adopt = process.argv.includes('--adopt');
  const opening = startPostgres({ dataDir, adopt, onProgress: progress });
  return start(opening, (server) => server.stop()).catch(stopIfRefused);
}

async function demoAccount(former: string | undefined): Promise<string> {
  if (former !== undefined) {
    const db = openDatabase(config.databaseUrl, { maxConnections: 1 });
    const account = await findCardAccount(db, former).finally(() => db.destroy());
    if (account && account.balanceMicroUsd >= MIN_DEMO_BALANCE_MICRO_USD) return account.id;
  }
  progress('Buying credit for the demo account');
  return buyDemoCredit(config.baseUrl, DEMO_CREDIT_CENTS);
}

async function start<P>(opening: Promise<P>, close: (part: P) => Promise<void>): Promise<P> {
  const entered = opening.then((part) => {
    started.push(() => close(part));
    return part;
  });
  return step(entered);
}

/** A stop waits for the running step, and no other begins. */
async function step<T>(work: Promise<T>): Promise<T> {
  running = work;
  try {
    return await work;
  } finally {
    if (stopped) await new Promise(() => {});
  }
}

function close(part: { close(): Promise<void> }): Promise<void> {
  return part.close();
}

function stopParts(): Promise<void> {
  stopped ??= closeParts();
  return stopped;
}

async function closeParts(): Promise<void> {
  await running.catch(() => {});
  const failures: unknown[] = [];
  for (const closePart of started.toReversed()) await closePart().catch((error) => failures.push(error));
  if (failures.length > 0)
    throw new AggregateError(failures, 'Some parts of the sandbox did not stop. Check for processes that still run.');
}

async function stopBecause(reason: string): Promise<void> {
  console.error(`The sandbox can't start:\n${reason}`);
  await stopParts();
}

/** Exits if the folder is not usable, or may belong to somebody else. */
async function stopIfRefused(error: Error): Promise<never> {
  const fault = folderFault(dataDir, error);
  if (fault === undefined) throw error;
  await stopBecause(fault);
  process.exit(EXIT_CONFIG);
}

async function keep(claim: Claim, where: string, choice: string): Promise<void> {
  if (claim.outcome === 'claimed') {
    started.push(() => claim.close());
    return;
  }
  const { pid } = claim;
  const [who, stop] =
    pid === undefined ? ['Another process', 'stop it'] : [`Process ${pid}`, `stop it with kill ${pid}`];
  await stopBecause(`${who} already runs a sandbox ${where}. Use that one, ${stop}, or choose another ${choice}.`);
  process.exit(EXIT_CONFIG);
}

/** At the second Ctrl-C. The first may arrive twice, from the terminal and from npm. */
async function endAtOnce(): Promise<void> {
  if (performance.now() - stoppingAt < REPEATED_SIGNAL_MS) return;
  const cluster = await realpath(join(dataDir, 'postgres', 'cluster', 'data')).catch(() => undefined);
  const postmaster = cluster && (await findPostmaster(cluster));
  if (postmaster) process.kill(postmaster.pid, 'SIGQUIT');
  const anvil = await findAnvil(join(dataDir, 'chain'));
  if (anvil) process.kill(anvil, 'SIGKILL');
  process.exit(EXIT_INTERRUPTED);
}

/** A killed npm leaves its child running, so the child stops by itself. */
function stopWithParent(): void {
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) stop();
  }, PARENT_CHECK_MS).unref();
}
