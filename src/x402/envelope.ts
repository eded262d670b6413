import { PaymentPayloadV2Schema } from '@x402/core/schemas';
import {
  isValidPaymentId,
  PAYMENT_ID_MAX_LENGTH,
  PAYMENT_ID_MIN_LENGTH,
  PAYMENT_IDENTIFIER,
} from '@x402/extensions/payment-identifier';
import { withFullV } from '../crypto/wallet-signature.ts';
import { canonicalize } from '../lib/canonical-json.ts';
import type { Address } from './payees.ts';

export type Hex = `0x${string}`;

/** An EIP-3009 `transferWithAuthorization` that the payer has signed. Addresses and nonce in lower case. */
export interface TransferAuthorization {
  readonly from: Address;
  readonly to: Address;
  /** Atomic units of the asset. */
  readonly value: bigint;
  /** Unix seconds; valid after this and before that. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: Hex;
}

/** A payment as a client sent it: well-formed, and nothing more is known of it. */
export interface PaymentEnvelope {
  readonly identifier: string;
  /** What the client says that it accepted. */
  readonly accepted: unknown;
  readonly authorization: TransferAuthorization;
  readonly signature: Hex;
  /** Canonical JSON of the whole payload, for the identity of the request (R22). */
  readonly canonical: string;
}

/** The payload can't be a payment to this service. `rule` names what it breaks, `field` where. */
export class InvalidEnvelope extends Error {
  constructor(
    readonly field: string,
    readonly rule: string,
    message: string,
  ) {
    super(message);
  }
}

/** Characters of the header; a payload with the echoed extensions of a challenge needs about 6,000. */
const MAX_HEADER_CHARACTERS = 32_768;
const MAX_DEPTH = 32;
const MAX_UINT256 = 2n ** 256n - 1n;

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;
const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const NONCE = /^0x[0-9a-fA-F]{64}$/;
/** An ECDSA signature has 65 bytes; those of smart accounts are longer. */
const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){65,8192}$/;
const DECIMAL = /^(?:0|[1-9][0-9]{0,77})$/;

/** What a payment identifier is made of (R22), in words. */
export const IDENTIFIER_RULE = `${PAYMENT_ID_MIN_LENGTH} to ${PAYMENT_ID_MAX_LENGTH} characters of A-Z a-z 0-9 _ -`;

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Reads the PAYMENT-SIGNATURE header: Base64 (standard, URL-safe or unpadded) of an x402 version 2 PaymentPayload with
 * an EIP-3009 authorization and a payment identifier (R22, R27). A schema that the client sent along is never looked at.
 * @throws InvalidEnvelope
 */
export function decodeEnvelope(header: string): PaymentEnvelope {
  const payload = parse(header);
  if (payload.x402Version !== 2 || !Object.hasOwn(payload, 'accepted')) {
    throw new InvalidEnvelope('x402Version', 'x402 version 2', 'Send an x402 version 2 payload with `accepted`.');
  }
  const parsed = PaymentPayloadV2Schema.safeParse(payload);
  if (!parsed.success) {
    const path = parsed.error.issues[0]?.path.slice(0, 3).map(String) ?? [];
    const field = path.every((part) => /^[A-Za-z0-9]{1,40}$/.test(part)) ? path.join('.') : 'payload';
    throw new InvalidEnvelope(field || 'payload', 'schema', `${field || 'The payload'} is not as x402 version 2 says.`);
  }
  const identifier = readIdentifier(payload.extensions);
  const signed = payload.payload as Record<string, unknown>;
  const exact = readExactEvm(signed);
  // The same payment, however its wallet writes v (R67).
  const identity = { ...payload, payload: { ...signed, signature: withFullV(exact.signature) } };
  return { identifier, accepted: payload.accepted, canonical: canonicalForm(identity), ...exact };
}

function parse(header: string): Record<string, unknown> {
  const text = header.trim();
  if (text.length > MAX_HEADER_CHARACTERS) {
    throw new InvalidEnvelope(
      'payment-signature',
      'maxLength',
      `It is longer than ${MAX_HEADER_CHARACTERS} characters.`,
    );
  }
  if (!BASE64.test(text)) throw new InvalidEnvelope('payment-signature', 'base64', 'It is not Base64.');
  let payload: unknown;
  try {
    payload = JSON.parse(utf8.decode(Buffer.from(text, 'base64')));
  } catch {
    throw new InvalidEnvelope('payment-signature', 'json', 'It is not the Base64 of JSON.');
  }
  if (!isRecord(payload)) throw new InvalidEnvelope('payment-signature', 'object', 'Its JSON is not an object.');
  if (isDeeperThan(payload, MAX_DEPTH)) {
    throw new InvalidEnvelope('payment-signature', 'depth', `Its JSON is nested deeper than ${MAX_DEPTH} levels.`);
  }
  return payload;
}

function readIdentifier(extensions: unknown): string {
  const extension = member(extensions, PAYMENT_IDENTIFIER);
  const identifier = member(member(extension, 'info'), 'id');
  if (typeof identifier === 'string' && isValidPaymentId(identifier)) return identifier;
  throw new InvalidEnvelope(
    'extensions.payment-identifier.info.id',
    'required',
    `A payment identifier of ${IDENTIFIER_RULE} is required.`,
  );
}

function readExactEvm(payload: Record<string, unknown>): Pick<PaymentEnvelope, 'authorization' | 'signature'> {
  // A facilitator would take the Permit2 path wherever it finds this member, whatever stands beside it.
  if (Object.hasOwn(payload, 'permit2Authorization')) {
    throw new InvalidEnvelope(
      'payload.permit2Authorization',
      'eip3009',
      'Permit2 is not served; sign an EIP-3009 authorization.',
    );
  }
  const fields = member(payload, 'authorization');
  const signature = member(payload, 'signature');
  if (typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    throw new InvalidEnvelope('payload.signature', 'format', 'payload.signature is no signature in hexadecimal.');
  }
  return {
    authorization: {
      from: hex(fields, 'from', ADDRESS),
      to: hex(fields, 'to', ADDRESS),
      value: uint256(fields, 'value'),
      validAfter: uint256(fields, 'validAfter'),
      validBefore: uint256(fields, 'validBefore'),
      nonce: hex(fields, 'nonce', NONCE),
    },
    signature: signature as Hex,
  };
}

/** A field of the authorization that has the form. */
function text(fields: unknown, name: string, form: RegExp): string {
  const value = member(fields, name);
  if (typeof value === 'string' && form.test(value)) return value;
  throw new InvalidEnvelope(`payload.authorization.${name}`, 'format', `payload.authorization.${name} is malformed.`);
}

const hex = <T extends Hex>(fields: unknown, name: string, form: RegExp) => text(fields, name, form).toLowerCase() as T;

function uint256(fields: unknown, name: string): bigint {
  const value = BigInt(text(fields, name, DECIMAL));
  if (value <= MAX_UINT256) return value;
  throw new InvalidEnvelope(`payload.authorization.${name}`, 'uint256', `payload.authorization.${name} is too large.`);
}

/** Fails on a number that is none, such as 1e999. */
function canonicalForm(payload: object): string {
  try {
    return canonicalize(payload);
  } catch {
    throw new InvalidEnvelope('payment-signature', 'json', 'Its JSON has no canonical form.');
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const member = (value: unknown, name: string): unknown =>
  isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;

/** Whether a JSON value is nested deeper than this, without recursion. */
function isDeeperThan(root: unknown, depth: number): boolean {
  let level = [root];
  for (let at = 0; level.length > 0; at++) {
    if (at > depth) return true;
    const below: unknown[] = [];
    for (const value of level) {
      if (typeof value === 'object' && value !== null) for (const inner of Object.values(value)) below.push(inner);
    }
    level = below;
  }
  return false;
}
