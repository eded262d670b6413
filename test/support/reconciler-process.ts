/**
 * A turn of the reconciler that the argument names, in a process of its own: `speechgate reconcile` with nothing but what
 * this one needs, since all of it takes seconds to load.
 */
import { pino } from 'pino';
import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../src/config/network.ts';
import { openDatabase } from '../../src/db/database.ts';
import type { Reconciler } from '../../src/reconcile/reconciler.ts';
import { ReconcilerRunner } from '../../src/reconcile/runner.ts';

const { DATABASE_URL = '', AUDIO_STORE = '', STRIPE_SECRET_KEY = '', STRIPE_API_BASE, X402_RPC_URL = '' } = process.env;
const db = openDatabase(DATABASE_URL, { maxConnections: 4 });

async function openCard() {
  const { Processor } = await import('../../src/payments/top-up/processor.ts');
  const { Purchases } = await import('../../src/payments/top-up/purchases.ts');
  const processor = new Processor(STRIPE_SECRET_KEY, STRIPE_API_BASE, { retries: 0 });
  return { processor, purchases: new Purchases(db, processor, { baseUrl: '', serviceName: '' }) };
}

async function openClawbacks() {
  const { processor, purchases } = await openCard();
  const { Clawbacks } = await import('../../src/payments/top-up/clawbacks.ts');
  return { processor, clawbacks: new Clawbacks(db, processor, purchases) };
}

async function openX402() {
  const { openPayments } = await import('../../src/payments/x402/resolver.ts');
  const asset = {
    network: DEFAULT_NETWORK,
    chainId: 8453,
    address: DEFAULT_ASSET,
    name: 'USD Coin',
    version: '2',
  } as const;
  return openPayments(db, asset, [X402_RPC_URL]);
}

async function openStore() {
  const { openAudioStore } = await import('../../src/speech/store/open-store.ts');
  return openAudioStore(AUDIO_STORE);
}

const oldRows = () => import('../../src/reconcile/old-rows.ts');
const topUps = () => import('../../src/reconcile/top-ups.ts');
const clawbacks = () => import('../../src/reconcile/clawbacks.ts');
const x402Payments = () => import('../../src/reconcile/x402-payments.ts');
const expiredAudio = () => import('../../src/reconcile/expired-audio.ts');

const reconcilers: Readonly<Record<string, () => Promise<Reconciler>>> = {
  expired_holds: async () => (await oldRows()).expiredHolds(db, 0),
  lost_jobs: async () => (await oldRows()).lostJobs(db),
  debts: async () => (await clawbacks()).debts(db),
  top_ups: async () => {
    const { processor, purchases } = await openCard();
    return (await topUps()).topUps(db, processor, purchases);
  },
  clawback_sweep: async () => {
    const opened = await openClawbacks();
    return (await clawbacks()).clawbackSweep(db, opened.processor, opened.clawbacks);
  },
  clawbacks: async () => (await clawbacks()).openClawbacks(db, (await openClawbacks()).clawbacks),
  abandoned_payments: async () => (await x402Payments()).abandonedPayments((await openX402()).reservations),
  doubtful_payments: async () => {
    const { states, resolver } = await openX402();
    return (await x402Payments()).doubtfulPayments(states, resolver);
  },
  failed_payments: async () => {
    const { states, resolver } = await openX402();
    return (await x402Payments()).failedPayments(states, resolver);
  },
  expired_audio: async () => (await expiredAudio()).expiredJobAudio(db, await openStore()),
  payment_audio: async () => (await expiredAudio()).expiredPaymentAudio(db, await openStore()),
};

const [name = ''] = process.argv.slice(2);
const reconciler = await reconcilers[name]?.();
if (!reconciler) throw new Error(`there is no reconciler ${name}`);
const runner = new ReconcilerRunner({ db, reconcilers: [reconciler], intervalMs: 1, log: pino({ level: 'silent' }) });
console.log(await runner.turn());
await db.destroy();
