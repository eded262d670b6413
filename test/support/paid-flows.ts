import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { LocalAccount } from 'viem';
import type { TestCheckout } from './checkout.ts';
import { DEPOSIT_PATH, depositOf, payDeposit } from './deposit.ts';
import { give } from './feedback.ts';
import { later, untilJob } from './jobs.ts';
import { domainOf, HELLO, TTS, withCredential } from './prepaid.ts';
import { until } from './until.ts';
import { viemWallet } from './wallet.ts';
import { payFor, type X402Gateway } from './x402.ts';

/** Who asks: what he can pay with. */
export interface Payers {
  readonly card: string;
  /** With a balance in the ledger. */
  readonly prepaid: LocalAccount;
  /** With USDC on the chain. */
  readonly direct: LocalAccount;
  /** Where credit is bought. */
  readonly checkout: TestCheckout;
}

/** Something that callers do, and what it writes, as `Update account`. */
export interface Flow {
  readonly writes: readonly string[];
  run(gateway: X402Gateway, payers: Payers): Promise<void>;
}

const HOLD_AND_CAPTURE = ['Insert transfer', 'Update account', 'Update transfer'];

/** Every way through the service that reaches the database. */
export const FLOWS: Readonly<Record<string, Flow>> = {
  'a card request': {
    writes: [...HOLD_AND_CAPTURE, 'Insert rate_window'],
    run: (gateway, { card }) => speaks(gateway, card, 200),
  },
  'a card request that its account can not pay': {
    writes: ['Insert rate_window'],
    run: async (gateway) => {
      const call = {
        method: 'POST',
        json: { text: 'x'.repeat(4000) },
        headers: { 'x-credit-account': await gateway.fund(1) },
      };
      assert.equal((await gateway.call('/tts', call)).status, 402);
    },
  },
  'a card request of nobody': {
    writes: ['Insert rate_window'],
    run: (gateway) => speaks(gateway, randomUUID(), 402),
  },
  'a balance of credit': {
    writes: [],
    run: async (gateway, { card }) => {
      assert.equal((await gateway.call(`/credits/${card}`)).status, 200);
    },
  },
  'a purchase of credit': {
    writes: ['Insert top_up', 'Update top_up', 'Insert transfer', 'Insert account'],
    run: async (gateway, { checkout }) => {
      const opened = await gateway.call('/top-up', {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: 'amount=500',
      });
      const { pathname, search } = new URL(await checkout.pay(opened.headers.get('location') ?? ''));
      assert.equal((await gateway.call(pathname + search)).status, 200);
    },
  },
  'a prepaid request, and its repetition': {
    writes: [...HOLD_AND_CAPTURE, 'Insert prepaid_nonce'],
    run: async (gateway, { prepaid }) => {
      const signed = await withCredential(prepaid, domainOf(gateway.payTo), TTS, HELLO);
      for (const status of [200, 409]) assert.equal((await gateway.call(TTS, signed)).status, status);
    },
  },
  'a prepaid balance': {
    writes: [],
    run: async (gateway, { prepaid }) => {
      const path = `/x402/accounts/${prepaid.address}`;
      const { status, text } = await gateway.call(
        path,
        await withCredential(prepaid, domainOf(gateway.payTo), path, {}),
      );
      assert.equal(status, 200, text);
    },
  },
  'a prepaid request of a wallet that never deposited': {
    writes: [],
    run: async (gateway, { direct }) => {
      const signed = await withCredential(direct, domainOf(gateway.payTo), TTS, HELLO);
      assert.equal((await gateway.call(TTS, signed)).status, 402);
    },
  },
  'a direct payment, and its repetition': {
    writes: ['Insert x402_payment', 'Update x402_payment', 'Insert transfer'],
    run: async (gateway, { direct }) => {
      const { reply, paid } = await payFor(gateway, direct);
      assert.equal(reply.status, 200, reply.text);
      assert.equal((await gateway.call('/x402/tts', paid)).status, 200);
    },
  },
  'a deposit': {
    writes: ['Insert x402_payment', 'Update x402_payment', 'Insert account', 'Insert transfer'],
    run: async (gateway, { direct }) => {
      assert.equal((await gateway.call(DEPOSIT_PATH, depositOf(100_000))).status, 402);
      assert.equal((await payDeposit(gateway, direct)).reply.status, 200);
    },
  },
  'a job, and its repetition': {
    writes: [...HOLD_AND_CAPTURE, 'Insert job', 'Update job'],
    run: async (gateway, { card }) => {
      const key = randomUUID();
      const { status, json, text } = await later(gateway, card, { key });
      assert.equal(status, 202, text);
      await untilJob(gateway, json.jobId, 'completed');
      assert.equal((await later(gateway, card, { key })).json.jobId, json.jobId);
    },
  },
  feedback: {
    writes: ['Insert feedback', 'Update feedback'],
    run: async (gateway) => {
      const { status, text, json } = await give(gateway, viemWallet());
      assert.equal(status, 201, text);
      const isMailed = async () => {
        const { rows } = await sql`
          select from feedback where id = ${json.feedbackId} and mailed_at is not null`.execute(gateway.db);
        return rows.length > 0;
      };
      await until(isMailed);
    },
  },
  'what operators collect': {
    writes: [],
    run: async ({ app }) => {
      for (const url of ['/metrics', '/readyz']) {
        assert.equal((await app.admin.inject({ url, headers: { host: 'localhost' } })).statusCode, 200);
      }
    },
  },
};

async function speaks(gateway: X402Gateway, account: string, status: number): Promise<void> {
  const reply = await gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': account } });
  assert.equal(reply.status, status, reply.text);
}
