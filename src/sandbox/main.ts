import { existsSync } from 'node:fs';
import closeWithGrace from 'close-with-grace';
import { createApp } from '../app.ts';
import { describeFaults, readConfig } from '../config/config.ts';
import { openDatabase } from '../db/database.ts';
import { migrate } from '../db/migrate.ts';
import { findCardAccount } from '../ledger/accounts.ts';
import { ForeignFileError, ownFolder } from '../lib/private-files.ts';
import { createLogger } from '../observability/logger.ts';
import { startCheckout } from './checkout/checkout-server.ts';
import { type Claim, claimDatabase, claimFolder } from './claim-folder.ts';
import { buyDemoCredit } from './demo-account.ts';
import { sandboxSettings } from './environment.ts';
import { freePort } from './free-port.ts';
import { instructions, readOffered } from './instructions.ts';
import { startMailSink } from './local-mail.ts';
import { UnknownDatabaseError } from './postgres/own-databases.ts';
import { startPostgres } from './postgres.ts';
import {
  DamagedSandboxFileError,
  dataDir,
  readSandboxFile,
  removeSandboxFile,
  removeSandboxSettings,
  type SandboxFile,
  writeSandboxFile,
  writeSandboxSettings,
} from './sandbox-file.ts';
import { sandboxKeys } from './sandbox-keys.ts';
import { startUsdc } from './usdc.ts';
import { startVoiceServer } from './voice/voice-server.ts';

const MIN_DEMO_BALANCE_MICRO_USD = 1_000_000n;
const DEMO_CREDIT_CENTS = 1000;
const PARENT_CHECK_MS = 1_000;
const EXIT_CONFIG = 78;

const startedAt = performance.now();
const seconds = () => ((performance.now() - startedAt) / 1000).toFixed(1);
const progress = (message: string) => console.log(`${seconds().padStart(5)} s  ${message}`);

/** In the order of starting. They stop in reverse. */
const started: { close(): Promise<void> }[] = [];

closeWithGrace({ delay: 60_000, logger: false }, async ({ err }) => {
  if (err) console.error('The sandbox stops after an error:', err instanceof ForeignFileError ? err.message : err);
  await stopParts();
});
stopWithParent();

await ownFolder(dataDir).catch(stopIfRefused);
const before = await readSandboxFile(dataDir).catch((error) => {
  if (error instanceof DamagedSandboxFileError) return undefined;
  return stopIfRefused(error);
});
await keep(await claimFolder(dataDir), `in ${dataDir} already${before ? `, on ${before.baseUrl}` : ''}`, 'DATA_DIR');
await removeSandboxFile(dataDir);
await removeSandboxSettings(dataDir);
started.push({ close: () => removeSandboxSettings(dataDir) });
let databaseUrl = process.env.SANDBOX_DATABASE_URL?.trim();
let nearDatabaseUrl = databaseUrl;
let databaseHome: string | undefined;
if (!databaseUrl) {
  progress('Starting PostgreSQL');
  const adopt = process.argv.includes('--adopt');
  const postgres = await startPostgres({ dataDir, adopt, onProgress: progress }).catch(stopIfRefused);
  started.push({ close: () => postgres.stop() });
  databaseUrl = postgres.url;
  nearDatabaseUrl = postgres.nearUrl;
  databaseHome = postgres.home;
}
await keep(await claimDatabase(databaseUrl), 'on the database of SANDBOX_DATABASE_URL already', 'database');
progress('Bringing the schema up to date');
await migrate(databaseUrl);

const keys = await sandboxKeys(dataDir);
progress('Starting the local card checkout');
const checkout = await startCheckout({ dataDir, secretKey: keys.stripeSecretKey });
started.push(checkout);

progress('Starting the local mail server');
const mail = await startMailSink({ dataDir, onMail: (file) => console.log(`Mail arrived: ${file}`) });
started.push(mail);

progress('Starting a local chain with USDC, and its facilitator');
const usdc = await startUsdc(dataDir, keys, progress);
started.push(usdc);

let voiceSettings: Record<string, string> = {};
if (process.env.SPEECH_BASE_URL === undefined) {
  progress('Starting the voice, which reads English only; SPEECH_BASE_URL names a speech server for other languages');
  const voice = await startVoiceServer({ port: 0 });
  started.push(voice);
  voiceSettings = { SPEECH_BASE_URL: voice.baseUrl, SPEECH_API_KEY: '' };
}

progress('Starting the gateway');
const port = await freePort(Number(process.env.PORT ?? 8080));
if (String(port) !== (process.env.PORT ?? '8080')) progress(`Port ${process.env.PORT ?? 8080} is taken, using ${port}`);
const settings = sandboxSettings(process.env, {
  PORT: String(port),
  DATA_DIR: dataDir,
  DATABASE_URL: nearDatabaseUrl ?? databaseUrl,
  STRIPE_SECRET_KEY: keys.stripeSecretKey,
  STRIPE_API_BASE: checkout.apiBase,
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
const app = await createApp(config, createLogger(config.logLevel));
started.push(app);
await app.server.listen({ host: config.host, port: config.port });
if (config.adminPort !== undefined) await app.admin.listen({ host: config.admin.host, port: config.adminPort });
app.worker?.start();
app.mailer?.start();

const creditAccount = await demoAccount(before?.creditAccount);
const sandbox: SandboxFile = {
  baseUrl: config.baseUrl,
  creditAccount,
  checkoutUrl: checkout.origin,
  chain: usdc.chain,
  facilitatorUrl: usdc.facilitatorUrl,
  wallet: usdc.wallet,
  databaseUrl,
};
await writeSandboxSettings(dataDir, settings);
await writeSandboxFile(dataDir, sandbox);
progress('Ready');
const hasScripts = existsSync(new URL('../../src', import.meta.url));
console.log(instructions(sandbox, { dataDir, databaseHome, hasScripts }, await readOffered(config.baseUrl)));

async function demoAccount(former: string | undefined): Promise<string> {
  if (former !== undefined) {
    const db = openDatabase(config.databaseUrl, { maxConnections: 1 });
    const account = await findCardAccount(db, former).finally(() => db.destroy());
    if (account && account.balanceMicroUsd >= MIN_DEMO_BALANCE_MICRO_USD) return account.id;
  }
  progress('Buying credit for the demo account');
  return buyDemoCredit(config.baseUrl, DEMO_CREDIT_CENTS);
}

async function stopParts(): Promise<void> {
  for (const part of started.reverse()) await part.close();
}

async function stopBecause(reason: string): Promise<void> {
  console.error(`The sandbox can't start:\n${reason}`);
  await stopParts();
}

/** Exits if a file or database may belong to somebody else. */
async function stopIfRefused(error: unknown): Promise<never> {
  if (!(error instanceof ForeignFileError || error instanceof UnknownDatabaseError)) throw error;
  await stopBecause(error.message);
  process.exit(EXIT_CONFIG);
}

async function keep(claim: Claim, where: string, choice: string): Promise<void> {
  if (claim.outcome === 'claimed') {
    started.push(claim);
    return;
  }
  const { pid } = claim;
  const [who, stop] =
    pid === undefined ? ['Another process', 'stop it'] : [`Process ${pid}`, `stop it with kill ${pid}`];
  await stopBecause(`${who} runs a sandbox ${where}. Use that one, ${stop}, or choose another ${choice}.`);
  process.exit(EXIT_CONFIG);
}

/** A killed npm leaves its child running, so the child stops by itself. */
function stopWithParent(): void {
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) process.kill(process.pid, 'SIGTERM');
  }, PARENT_CHECK_MS).unref();
}
