import {
  isValidPaymentId,
  PAYMENT_ID_MAX_LENGTH,
  PAYMENT_ID_MIN_LENGTH,
  PAYMENT_IDENTIFIER,
} from '@x402/extensions/payment-identifier';
import type { Address } from '../../config/payees.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { compileSchema } from '../../lib/json-schema.ts';
import { compactFault, withFullV } from '../../lib/wallet-signature.ts';
import { parseWithoutNulls } from '../../lib/without-nulls.ts';

export type Hex = `0x${string}`;

/** A signed EIP-3009 `transferWithAuthorization`. Addresses and nonce are in lower case. */
interface TransferAuthorization {
  readonly from: Address;
  readonly to: Address;
  readonly value: bigint;
  /** Unix seconds: valid after the first and before the second. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: Hex;
}

export interface PaymentEnvelope {
  readonly identifier: string;
  readonly accepted: unknown;
  readonly authorization: TransferAuthorization;
  readonly signature: Hex;
  /** Canonical JSON of the whole payload, as part of the payment's identity (R22). */
  readonly canonical: string;
}

export class InvalidEnvelope extends Error {
  constructor(
    readonly field: string,
    readonly rule: string,
    message: string,
  ) {
    super(message);
  }
}

const MAX_HEADER_CHARACTERS = 32_768;
const MAX_DEPTH = 32;
const MAX_UINT256 = 2n ** 256n - 1n;

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;
const ADDRESS = /^0x[0-9a-fA-F]{40}$/;
const NONCE = /^0x[0-9a-fA-F]{64}$/;
/** An ECDSA signature has 65 bytes; those of smart accounts are longer. */
const SIGNATURE = /^0x(?:[0-9a-fA-F]{2}){65,8192}$/;
const DECIMAL = /^(?:0|[1-9][0-9]{0,77})$/;

/** 16 to 128 characters (R74). */
export const IDENTIFIER_RULE = `${PAYMENT_ID_MIN_LENGTH} to ${PAYMENT_ID_MAX_LENGTH} characters of A-Z a-z 0-9 _ -`;

const object = (required: readonly string[], properties: Readonly<Record<string, object>>) => ({
  type: 'object',
  required,
  properties,
});
const filled = { type: 'string', minLength: 1 };
const printable = { type: 'string', maxLength: 32, pattern: '^[ -~]+$' };

/** As PaymentPayloadV2Schema of @x402/core, whose parsing took 2 % of a payment's CPU and 6 % of its memory. */
const isPayload = compileSchema(
  object(['x402Version', 'accepted', 'payload'], {
    x402Version: { const: 2 },
    resource: object(['url'], {
      url: filled,
      description: { type: 'string' },
      mimeType: { type: 'string' },
      serviceName: printable,
      tags: { type: 'array', items: printable, maxItems: 5 },
      iconUrl: { type: 'string', maxLength: 2048 },
    }),
    accepted: object(['scheme', 'network', 'amount', 'asset', 'payTo', 'maxTimeoutSeconds'], {
      scheme: filled,
      network: { type: 'string', minLength: 3, pattern: ':' },
      amount: filled,
      asset: filled,
      payTo: filled,
      maxTimeoutSeconds: { type: 'number', exclusiveMinimum: 0 },
      extra: { type: 'object' },
    }),
    payload: { type: 'object' },
    extensions: { type: 'object' },
  }),
);

const utf8 = new TextDecoder('utf-8', { fatal: true });

/**
 * Reads the PAYMENT-SIGNATURE header (R74): Base64 (standard, URL-safe or unpadded) of an x402 version 2 PaymentPayload with
 * an EIP-3009 authorization and a payment identifier. Ignores schemas that the client sent.
 * @throws InvalidEnvelope, answered by 400 INVALID_PAYMENT_PAYLOAD before anything is verified
 */
export function decodeEnvelope(header: string): PaymentEnvelope {
  const payload = parse(header);
  if (payload.x402Version !== 2 || !Object.hasOwn(payload, 'accepted')) {
    const message = 'payment-signature must be an x402 version 2 payload with `accepted`.';
    throw new InvalidEnvelope('x402Version', 'x402 version 2', message);
  }
  if (!isPayload(payload)) {
    const { instancePath = '', params = {} } = isPayload.errors?.[0] ?? {};
    const path = `${instancePath}/${params.missingProperty ?? ''}`.split('/').filter(Boolean).slice(0, 3);
    const field = path.every((part) => /^[A-Za-z0-9]{1,40}$/.test(part)) ? path.join('.') : 'payload';
    throw new InvalidEnvelope(
      field || 'payload',
      'schema',
      `${field || 'The payload'} in payment-signature must match the x402 version 2 schema.`,
    );
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
  if (text.length > MAX_HEADER_CHARACTERS)
    throw malformed('maxLength', `payment-signature must have at most ${MAX_HEADER_CHARACTERS} characters.`);
  if (!BASE64.test(text)) throw malformed('base64', 'payment-signature must be the Base64 of JSON, and is not Base64.');
  let payload: unknown;
  try {
    payload = parseWithoutNulls(utf8.decode(Buffer.from(text, 'base64')));
  } catch {
    throw malformed('json', 'payment-signature must be the Base64 of JSON.');
  }
  if (!isRecord(payload)) throw malformed('object', 'The JSON in payment-signature must be an object.');
  if (isDeeperThan(payload, MAX_DEPTH))
    throw malformed('depth', `The JSON in payment-signature must have at most ${MAX_DEPTH} levels.`);
  return payload;
}

const malformed = (rule: string, message: string) => new InvalidEnvelope('payment-signature', rule, message);

function readIdentifier(extensions: unknown): string {
  const identifier = member(member(member(extensions, PAYMENT_IDENTIFIER), 'info'), 'id');
  if (typeof identifier === 'string' && isValidPaymentId(identifier)) return identifier;
  const message = `extensions.payment-identifier.info.id in payment-signature must be ${IDENTIFIER_RULE}.`;
  throw new InvalidEnvelope('extensions.payment-identifier.info.id', 'required', message);
}

function readExactEvm(payload: Record<string, unknown>): Pick<PaymentEnvelope, 'authorization' | 'signature'> {
  // A facilitator takes the Permit2 path whenever this member exists.
  if (Object.hasOwn(payload, 'permit2Authorization')) {
    const message = 'payment-signature is a Permit2 payment, which is not supported. Sign an EIP-3009 authorization.';
    throw new InvalidEnvelope('payload.permit2Authorization', 'eip3009', message);
  }
  const fields = member(payload, 'authorization');
  const signature = member(payload, 'signature');
  const compact = compactFault('payload.signature', signature);
  if (compact) throw new InvalidEnvelope('payload.signature', '65 bytes', compact);
  if (typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    const message = 'payload.signature in payment-signature must be 65 to 8192 bytes in hexadecimal, with 0x in front.';
    throw new InvalidEnvelope('payload.signature', 'format', message);
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

function text(fields: unknown, name: string, form: RegExp): string {
  const value = member(fields, name);
  if (typeof value === 'string' && form.test(value)) return value;
  const field = `payload.authorization.${name}`;
  throw new InvalidEnvelope(field, 'format', `${field} in payment-signature must match ${form.source}.`);
}

const hex = <T extends Hex>(fields: unknown, name: string, form: RegExp) => text(fields, name, form).toLowerCase() as T;

function uint256(fields: unknown, name: string): bigint {
  const value = BigInt(text(fields, name, DECIMAL));
  if (value <= MAX_UINT256) return value;
  const field = `payload.authorization.${name}`;
  throw new InvalidEnvelope(field, 'uint256', `${field} in payment-signature must be below 2^256.`);
}

/** Throws for a number without JSON form, such as 1e999. */
function canonicalForm(payload: object): string {
  try {
    return canonicalize(payload);
  } catch {
    throw malformed('json', 'The JSON in payment-signature has a number that is too large, such as 1e999.');
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const member = (value: unknown, name: string): unknown =>
  isRecord(value) && Object.hasOwn(value, name) ? value[name] : undefined;

/** Recursion is bounded by `depth` + 1 levels for any input. */
function isDeeperThan(value: unknown, depth: number): boolean {
  if (depth < 0) return true;
  if (typeof value !== 'object' || value === null) return false;
  for (const inner of Object.values(value)) if (isDeeperThan(inner, depth - 1)) return true;
  return false;
}
