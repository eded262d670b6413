import { randomBytes, randomUUID } from 'node:crypto';
import { type Challenge, separatorOf, signedPayment } from '../../signers/payment-signer.ts';
import { prepaidSigner } from '../../signers/prepaid-signer.ts';
import { ACCOUNTS, accountId, CHAIN_ID, PAY_TO, wallets } from '../world.ts';

export interface Plan {
  readonly path: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
  /** `account`: a card account's id in a header. `guess`: a random id. `direct`: a payment for this challenge. */
  readonly payment:
    | { readonly by: 'nothing' | 'account' | 'guess' | 'prepaid' }
    | { readonly by: 'direct'; readonly challenge: Challenge };
}

const PREPAID_DOMAIN = { name: 'speechgate-Prepaid', version: '1', chainId: CHAIN_ID, verifyingContract: PAY_TO };
/** Validity of prepaid signatures and authorizations. They are signed before a round and must outlast it. */
const VALID_SECONDS = 110;
const GUESSING_ADDRESSES = 50;

let payers: ReturnType<typeof signers> | undefined;

const signers = () =>
  wallets().map((wallet) => ({
    ...wallet,
    prepaid: prepaidSigner(wallet.address, `0x${Buffer.from(wallet.key).toString('hex')}`, PREPAID_DOMAIN),
  }));

/** Each signed request can be sent only once. */
export const isSigned = ({ payment }: Plan): boolean => payment.by === 'prepaid' || payment.by === 'direct';

/**
 * Complete HTTP requests, signed where necessary, in the order of accounts or wallets.
 * Without signatures there is one for each account, for repeated use.
 */
export function buildRequests(plan: Plan, count: number): Buffer[] {
  const { path, body, headers, payment } = plan;
  if (payment.by === 'nothing') return [wire(path, body, headers)];
  if (payment.by === 'account') {
    return Array.from({ length: ACCOUNTS }, (_, index) =>
      wire(path, body, { ...headers, 'x-credit-account': accountId(index) }),
    );
  }
  if (payment.by === 'guess') {
    return Array.from({ length: ACCOUNTS }, (_, index) => {
      const from = `198.19.0.${(index % GUESSING_ADDRESSES) + 1}`;
      return wire(path, body, { ...headers, 'x-credit-account': randomUUID(), 'x-forwarded-for': from });
    });
  }
  payers ??= signers();
  const known = payers;
  const expiry = BigInt(Math.floor(Date.now() / 1000) + VALID_SECONDS);
  const separator = payment.by === 'direct' ? separatorOf(payment.challenge, CHAIN_ID) : undefined;
  return Array.from({ length: count }, (_, index) => {
    const payer = known[index % known.length] as (typeof known)[number];
    if (payment.by === 'direct') {
      const terms = { nonce: randomBytes(32), identifier: `pay_${randomUUID()}`, validBefore: expiry };
      const signature = signedPayment(payment.challenge, payer, separator as Uint8Array, terms);
      return wire(path, body, { ...headers, 'x-forwarded-for': clientAddress(index), 'payment-signature': signature });
    }
    const call = { method: 'POST', body, headers };
    const signed = payer.prepaid(path, call, { nonce: randomUUID(), expiry, max: 1_000_000n });
    return wire(path, body, signed.headers as Record<string, string>);
  });
}

/** Rate limits of direct payments count by address, so each payer gets its own (RFC 2544), as if through a proxy. */
const clientAddress = (index: number): string => `198.18.${Math.floor(index / 250) % 4}.${(index % 250) + 1}`;

function wire(path: string, body: string, headers: Readonly<Record<string, string>>): Buffer {
  const lines = Object.entries({
    host: '127.0.0.1',
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`);
}
