import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { rotateKeys } from '../../../src/config/signing-keys.ts';
import { fund } from '../../../src/sandbox/chain/fund.ts';
import { freePort } from '../../../src/sandbox/free-port.ts';
import { isTakenAt, stripeAt } from '../../../test/support/checkout.ts';
import { type Owner, programCommand } from '../../../test/support/child.ts';
import { S3_CREDENTIALS } from '../../../test/support/s3-server.ts';
import { until } from '../../../test/support/until.ts';
import { type HttpLink, startHttpLink } from '../links.ts';
import { ChainPart, ProcessPart } from './parts.ts';
import { OUTSIDE, type OutsideName, type Processor, type Service } from './world.ts';

const BUCKET = 'soak';
const SECRET_KEY = 'sk_test_soak';
const GAS_WEI = 10n ** 24n;
const START_MS = 120_000;
const PAGE = 100;
/** How long the checkout may be unavailable during a payment. */
const PAY_TIMEOUT_MS = 300_000;
/** Other tests cover the limits. */
const SETTINGS = {
  ...{ RATE_LIMIT_MAX: '1000000', TOP_UP_RATE_LIMIT_MAX: '1000000', EDGE_RATE_LIMIT_MAX: '100000000' },
  ...{ FEEDBACK_MAX_PER_HOUR: '1000000', PREPAID_AUDIO_MIB_PER_MINUTE: '256', LOG_LEVEL: 'warn' },
  ...{ QUOTE_SECRET: 'q'.repeat(32), JOB_SIGNING_SECRET: 'j'.repeat(32), FEEDBACK_SECRET: 'f'.repeat(32) },
  ...{ ...S3_CREDENTIALS, AWS_REGION: 'us-east-1', AUDIO_STORE: `s3://${BUCKET}/audio`, STRIPE_SECRET_KEY: SECRET_KEY },
};

type ProcessName = 'facilitator' | 'checkout' | 'store' | 'upstream';

/** External services, each with the link through which the service calls it. */
export interface Outside {
  readonly parts: Readonly<Record<ProcessName, ProcessPart> & { chain: ChainPart }>;
  readonly links: Readonly<Record<OutsideName, HttpLink>>;
  /** What callers and the judge use of them. */
  readonly service: Pick<Service, 'payTo' | 'chain' | 'processor'>;
  /** Settings of the service, except of its database, that use the links, or with `isDirect` the services themselves. */
  settings(isDirect: boolean): Record<string, string>;
}

export async function openOutside(owner: Owner, folder: string): Promise<Outside> {
  const chain = await ChainPart.open(owner, folder);
  const PRIVATE_KEY = generatePrivateKey();
  await fund(chain.client, privateKeyToAccount(PRIVATE_KEY).address, { ether: GAS_WEI });
  const SIGNING_KEYS_FILE = join(folder, 'signing-keys.json');
  await writeFile(SIGNING_KEYS_FILE, JSON.stringify(rotateKeys(undefined, new Date())), { mode: 0o600 });

  const origins = { node: chain.url } as Record<OutsideName, string>;
  const open = async (name: ProcessName, env: Readonly<Record<string, string>>): Promise<ProcessPart> => {
    const PORT = String(await freePort());
    origins[name] = `http://127.0.0.1:${PORT}`;
    const part = new ProcessPart(owner, {
      command: programCommand('lab/soak/world/outside-process.ts', name),
      env: { PORT, ...env },
      ready: ({ printed }) => printed(/ready/, START_MS),
    });
    await part.start();
    return part;
  };
  const OPERATIONS_PORT = String(await freePort());
  const [facilitator, checkout, store, upstream] = await Promise.all([
    open('facilitator', { RPC_URL: chain.url, PRIVATE_KEY }),
    open('checkout', { DATA_DIR: join(folder, 'checkout'), OPERATIONS_PORT, SECRET_KEY }),
    open('store', { BUCKET }),
    open('upstream', {}),
  ]);
  const links = {} as Record<OutsideName, HttpLink>;
  for (const name of OUTSIDE) links[name] = await startHttpLink(owner, origins[name]);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  return {
    ...{ parts: { facilitator, checkout, store, upstream, chain }, links },
    service: { payTo, chain: chain.client, processor: processorAt(origins.checkout, OPERATIONS_PORT) },
    settings: (isDirect) => {
      const at = (name: OutsideName) => (isDirect ? origins[name] : links[name].origin);
      return {
        ...{ ...SETTINGS, DATA_DIR: join(folder, 'data'), SIGNING_KEYS_FILE, AWS_ENDPOINT_URL: at('store') },
        ...{ SPEECH_BASE_URL: `${at('upstream')}/v1`, X402_PAY_TO: payTo },
        ...{ X402_FACILITATOR_URL: at('facilitator'), X402_RPC_URL: at('node') },
        ...{ STRIPE_API_BASE: at('checkout'), CHECKOUT_ORIGIN: origins.checkout },
      };
    },
  };
}

/** The checkout without faults, as buyers, merchant and banks use it. */
function processorAt(origin: string, operationsPort: string): Processor {
  const stripe = stripeAt(origin, SECRET_KEY);
  const operate =
    (name: string) =>
    async (...given: unknown[]): Promise<never> => {
      const url = `http://127.0.0.1:${operationsPort}/${name}`;
      const answer = await fetch(url, { method: 'POST', body: JSON.stringify(given) });
      const result = (await answer.json()) as { message?: string };
      if (!answer.ok) throw new Error(`${name}: ${result.message}`);
      return result as never;
    };
  return {
    ...{ refund: operate('refund'), settleRefund: operate('settleRefund') },
    ...{ openDispute: operate('openDispute'), updateDispute: operate('updateDispute') },
    pay: async (checkoutUrl) => {
      const headers = { 'content-type': 'application/x-www-form-urlencoded' };
      const buyer = { method: 'POST', body: 'card=accepted', redirect: 'manual', headers } as const;
      let back: string | null | undefined;
      await until(async () => {
        back = (await fetch(checkoutUrl, buyer).catch(() => undefined))?.headers.get('location');
        return Boolean(back);
      }, PAY_TIMEOUT_MS);
      return back ?? '';
    },
    takenBack: async () => {
      const cents = new Map<string, number>();
      for (const list of [stripe.refunds.list({ limit: PAGE }), stripe.disputes.list({ limit: PAGE })]) {
        for await (const { payment_intent: payment, status, amount } of list) {
          if (isTakenAt(status)) cents.set(String(payment), (cents.get(String(payment)) ?? 0) + amount);
        }
      }
      return [...cents].map(([payment_intent_id, cents]) => ({ payment_intent_id, cents }));
    },
  };
}
