import { randomBytes, randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { type Address, type Hex, hashTypedData, keccak256, type LocalAccount } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { DEFAULT_ASSET } from '../../src/config/network.ts';
import { currentPayee } from '../../src/config/payees.ts';
import type { Database } from '../../src/db/database.ts';
import { findWallet } from '../../src/ledger/accounts.ts';
import { canonicalQuery } from '../../src/lib/canonical-query.ts';
import type { PrepaidRequest } from '../../src/payments/prepaid/prepaid-credential.ts';
import { bookSettlement } from '../../src/payments/x402/book-settlement.ts';
import { PREPAID_TYPES } from '../../src/payments/x402/signed-types.ts';
import { type Call, type Gateway, type GatewayOptions, startGateway } from './gateway.ts';
import { testUpstream } from './stub-upstream.ts';

export const TTS = '/x402/tts';
/** 198 micro-USD by the default model. */
export const HELLO: Call = { method: 'POST', json: { text: 'Hello world' } };

export const domainOf = (payTo: Address, name = 'speechgate-Prepaid', chainId = 8453) =>
  ({ name, version: '1', chainId, verifyingContract: payTo }) as const;

export const hashWithViem = (
  domain: ReturnType<typeof domainOf>,
  request: Omit<PrepaidRequest, 'bodyHash'> & { bodyHash: Hex },
): Hex => hashTypedData({ domain, types: PREPAID_TYPES, primaryType: 'PrepaidRequest', message: request });

export interface CredentialTerms {
  nonce?: string;
  expiry?: bigint;
  max?: bigint;
  /** The canonical query of a GET; by default as the service makes it, empty for a balance. */
  query?: string;
}

/** The call with the prepaid headers of this wallet, signed by viem. */
export async function withCredential(
  wallet: LocalAccount,
  domain: ReturnType<typeof domainOf>,
  path: string,
  call: Call,
  terms: CredentialTerms = {},
): Promise<Call> {
  const { nonce = randomUUID(), expiry = BigInt(Math.floor(Date.now() / 1000) + 100), max = 1_000_000n } = terms;
  const method = call.method ?? 'GET';
  const body = call.json === undefined ? (call.body ?? '') : JSON.stringify(call.json);
  const query = terms.query ?? (path.startsWith('/x402/accounts/') ? '' : canonicalQuery(path));
  const signed = Buffer.from(method === 'POST' ? body : query);
  const signature = await wallet.signTypedData({
    domain,
    types: PREPAID_TYPES,
    primaryType: 'PrepaidRequest',
    message: {
      account: wallet.address,
      method,
      path: path.split('?')[0] as string,
      bodyHash: keccak256(signed),
      maxAmountMicroUsd: max,
      nonce,
      expiry,
    },
  });
  return {
    ...call,
    headers: {
      ...call.headers,
      'x-x402-account': wallet.address,
      'x-x402-nonce': nonce,
      'x-x402-expiry': String(expiry),
      'x-x402-max-amount': String(max),
      'x-x402-signature': signature,
    },
  };
}

export type PrepaidGateway = Awaited<ReturnType<typeof startPrepaidGateway>>;
export type Depositor = Awaited<ReturnType<typeof fundedWallet>>;

/** Signs prepaid requests; without terms, ones that the gateway serves. */
export type Signer = (path: string, call?: Call, terms?: CredentialTerms) => Promise<Call>;

/** A gateway with a speech upstream of its own, and no chain: prepaid requests need none. */
export async function startPrepaidGateway(t: Test, env: Record<string, string> = {}, options: GatewayOptions = {}) {
  const upstream = await testUpstream(t);
  const gateway = await startGateway(t, { SPEECH_BASE_URL: upstream.url, ...env }, options);
  const { x402, serviceName } = gateway.config;
  const payee = currentPayee(x402?.payees ?? []).address;
  /** That its prepaid requests are signed for. */
  const domain = domainOf(payee, `${serviceName}-Prepaid`);
  return { ...gateway, upstream, domain };
}

/** A wallet, a new one unless it is given, with this much deposited in the ledger. */
export async function fundedWallet(
  { db, domain }: PrepaidGateway,
  microUsd: bigint,
  wallet: LocalAccount = privateKeyToAccount(generatePrivateKey()),
) {
  const address = wallet.address.toLowerCase();
  if (microUsd > 0n) await bookDeposit(db, address, microUsd);
  const sign: Signer = (path, call = {}, terms = {}) => withCredential(wallet, domain, path, call, terms);
  return {
    wallet,
    sign,
    /** In micro-USD, as the ledger has it. */
    balance: async () => (await findWallet(db, address)) ?? 0n,
  };
}

/** Books a deposit as if the chain had proved it. @param payer in lower case */
export async function bookDeposit(db: Database, payer: string, microUsd: bigint): Promise<void> {
  const id = await insertPaymentInDoubt(db, payer, microUsd);
  await bookSettlement(db, id, { transaction: `0x${randomBytes(32).toString('hex')}`, logIndex: 0 }, 'receipt');
}

/** A payment whose end only the chain can tell, of a deposit unless it is for speech. @param payer in lower case */
export async function insertPaymentInDoubt(
  db: Database,
  payer: string,
  microUsd: bigint,
  purpose: 'deposit' | 'speech' = 'deposit',
): Promise<string> {
  const reference = randomUUID();
  const { rows } = await sql<{ id: string }>`
    insert into x402_payment (identifier, state, purpose, request_hash, network, asset, payer, nonce, pay_to,
                              amount_micro_usd, valid_before, head_block, settling_at)
    values (${reference}, 'unknown', ${purpose}, '', 'eip155:8453', ${DEFAULT_ASSET.toLowerCase()}, ${payer}, ${reference}, '0xc', ${microUsd}, 0,
            0, now())
    returning id`.execute(db);
  return (rows[0] as { id: string }).id;
}

/** What an answer says was charged, and what is left; null where it does not say. */
export const balanceHeaders = ({ headers }: { headers: Headers }) => [
  headers.get('x-x402-charged'),
  headers.get('x-x402-balance'),
];

/** The call with other headers; one that is undefined is left out. */
export const withHeaders = (call: Call, headers: Record<string, string | undefined>): Call => ({
  ...call,
  headers: Object.fromEntries(
    Object.entries({ ...call.headers, ...headers }).filter(([, value]) => value !== undefined),
  ),
});

export const noncesOf = async ({ db }: Gateway): Promise<string[]> =>
  (await db.selectFrom('prepaid_nonce').select('nonce').orderBy('spent_at').execute()).map(({ nonce }) => nonce);
