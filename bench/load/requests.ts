import { randomBytes, randomUUID } from 'node:crypto';
import { type Challenge, separatorOf, signedPayment } from '../../test/support/payment-signer.ts';
import { prepaidSigner } from '../../test/support/prepaid-signer.ts';
import { ACCOUNTS, accountId, CHAIN_ID, PAY_TO, wallets } from '../world.ts';

/** A POST of JSON to a target, and how it is paid. */
export interface Plan {
  readonly path: string;
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
  /** `account` is a card account's id in a header, `guess` one that nobody has; `direct` answers this challenge. */
  readonly payment:
    | { readonly by: 'nothing' | 'account' | 'guess' | 'prepaid' }
    | { readonly by: 'direct'; readonly challenge: Challenge };
}

const PREPAID_DOMAIN = { name: 'speechgate-Prepaid', version: '1', chainId: CHAIN_ID, verifyingContract: PAY_TO };
/** Of prepaid signatures and authorizations: what is signed before a round must last for it. */
const VALID_SECONDS = 110;
/** Of those who guess ids of accounts. */
const GUESSING_ADDRESSES = 50;

let payers: ReturnType<typeof signers> | undefined;

function signers() {
  return wallets().map((wallet) => ({
    ...wallet,
    prepaid: prepaidSigner(wallet.address, `0x${Buffer.from(wallet.key).toString('hex')}`, PREPAID_DOMAIN),
  }));
}

/** Whether each of its requests is good for once only. */
export const isSigned = ({ payment }: Plan): boolean => payment.by === 'prepaid' || payment.by === 'direct';

/**
 * Whole requests as they go over the wire, signed where they must be, in the order of accounts or wallets. Without
 * signatures there is one for each account, to be sent again and again.
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

/** Direct payments are limited by address: each payer comes from one of his own (RFC 2544), through a proxy. */
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
