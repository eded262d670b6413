import { randomBytes } from 'node:crypto';
import { PAYMENT_IDENTIFIER } from '@x402/extensions/payment-identifier';
import type { FastifyBaseLogger } from 'fastify';
import { SignJWT } from 'jose';
import { Pool } from 'undici';
import type { FacilitatorCredential } from '../../config/x402-settings.ts';
import { parseWithoutNulls } from '../../lib/without-nulls.ts';
import {
  type CredentialAlarm,
  type OutsideCalls,
  type OutsideOutcome,
  outcomeOfStatus,
  UNMEASURED,
} from '../../observability/outside.ts';
import { identifierExtension, type Offer, type Resource } from './challenge.ts';
import type { Hex, PaymentEnvelope } from './envelope.ts';
import { AnswerTimeout, postJson, shownCode } from './json-exchange.ts';
import { LACKS_BALANCE } from './solvency.ts';

const VERIFY_TIMEOUT_MS = 5_000;
/** One that hung is asked last for this long, so that it doesn't delay each payment. */
const HUNG_MS = 30_000;
const MAX_ANSWER_BYTES = 65_536;
/** Short, because a settle on a connection that the other side has just closed has an unknown outcome. */
const KEEP_ALIVE_MS = 1_000;

export interface FacilitatorPayment {
  readonly envelope: PaymentEnvelope;
  /** For verify and settle: otherwise it would settle something that was not verified. */
  readonly body: string;
}

export function facilitatorPayment(envelope: PaymentEnvelope, offer: Offer, resource: Resource): FacilitatorPayment {
  const { authorization, signature, identifier } = envelope;
  const body = JSON.stringify({
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      resource: resource.resource,
      accepted: offer,
      payload: {
        signature,
        authorization: {
          ...authorization,
          value: String(authorization.value),
          validAfter: String(authorization.validAfter),
          validBefore: String(authorization.validBefore),
        },
      },
      extensions: { ...resource.extensions, [PAYMENT_IDENTIFIER]: identifierExtension(identifier) },
    },
    paymentRequirements: offer,
  });
  return { envelope, body };
}

export type Verification =
  | { readonly valid: true }
  | {
      readonly valid: false;
      readonly reason: string;
      readonly detail: string;
      /** The facilitator refuses the request itself, not its signature: for example for an amount below its minimum. */
      readonly isOfRequest?: boolean;
    };

/** What the facilitator says about a settle. Only the chain proves a payment (R25). */
export type SettleAnswer =
  /** Nothing was broadcast, for a reason that excludes it (R23). */
  | { readonly outcome: 'refused'; readonly reason: string; readonly detail: string }
  | { readonly outcome: 'open'; readonly transaction: Hex | undefined; readonly detail: string };

/** The facilitator was unreachable, too slow, or answered nonsense. The message repeats nothing that it wrote. */
export class FacilitatorError extends Error {
  /** What it wrote, for the log. */
  readonly detail?: string;

  constructor(message: string, { detail, ...options }: ErrorOptions & { readonly detail?: string } = {}) {
    super(message, options);
    if (detail !== undefined) this.detail = detail;
  }
}

/** Without a transaction, these reasons exclude a broadcast: no funds, expired, invalid signature (R23). */
const REFUSALS = new Set([
  'insufficient_funds',
  'invalid_exact_evm_insufficient_balance',
  'invalid_exact_evm_payload_authorization_valid_before',
  'invalid_exact_evm_payload_signature',
  'invalid_exact_evm_signature',
]);

const REFUSED_REQUESTS: ReadonlySet<number> = new Set([400, 413, 422]);

const TRANSACTION = /^(?:0x)?([0-9a-f]{64})$/i;
const REASON = /^[a-z0-9_]{1,100}$/;
const MAX_DETAIL_CHARACTERS = 200;

/** Verifies a payment, and settles it on the chain (R21). */
export class Facilitator {
  readonly host: string;
  readonly #pool: Pool;
  readonly #path: string;
  readonly #credential: FacilitatorCredential | undefined;

  readonly #settleTimeoutMs: number;
  readonly #onRefused: CredentialAlarm;
  readonly #calls: OutsideCalls;

  constructor(
    url: string,
    credential: FacilitatorCredential | undefined,
    settleTimeoutMs: number,
    onRefused: CredentialAlarm = () => {},
    calls: OutsideCalls = UNMEASURED,
  ) {
    this.#calls = calls;
    this.#settleTimeoutMs = settleTimeoutMs;
    this.#onRefused = onRefused;
    const base = new URL(url);
    this.#pool = new Pool(base.origin, {
      connections: 256,
      connectTimeout: VERIFY_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      headersTimeout: 0,
      bodyTimeout: 0,
      maxResponseSize: MAX_ANSWER_BYTES,
    });
    this.#path = base.pathname.replace(/\/+$/, '');
    this.host = base.host;
    this.#credential = credential;
  }

  async verify(payment: FacilitatorPayment): Promise<Verification> {
    const { status, body } = await this.#post('verify', payment, VERIFY_TIMEOUT_MS);
    if (isSuccess(status) && body.isValid === true && isPayer(body.payer, payment)) return { valid: true };
    const { invalidReason, invalidMessage, errorType, errorMessage } = body;
    const detail = detailOf(status, invalidReason, invalidMessage, errorType, errorMessage, body.error);
    if ((isSuccess(status) || isClientError(status)) && body.isValid === false) {
      return { valid: false, reason: reasonOf(invalidReason ?? errorType), detail };
    }
    if (REFUSED_REQUESTS.has(status) && body.isValid === undefined) {
      return { valid: false, reason: reasonOf(errorType ?? invalidReason ?? body.error), detail, isOfRequest: true };
    }
    throw new FacilitatorError(`The facilitator returned an invalid answer to verify (status ${status}).`, { detail });
  }

  async settle(payment: FacilitatorPayment): Promise<SettleAnswer> {
    let answer: { status: number; body: Record<string, unknown> };
    try {
      answer = await this.#post('settle', payment, this.#settleTimeoutMs);
    } catch (error) {
      const detail = error instanceof FacilitatorError ? error.message : String(error);
      return { outcome: 'open', transaction: undefined, detail };
    }
    const { status, body } = answer;
    // Older facilitators call it txHash.
    const named = body.transaction || body.txHash;
    const reason = reasonOf(body.errorReason);
    const detail = detailOf(status, body.errorReason, body.errorType, body.errorMessage, body.error);
    const isRefusal = (isSuccess(status) || isClientError(status)) && body.success === false && REFUSALS.has(reason);
    if (isRefusal && !named) return { outcome: 'refused', reason, detail };
    return { outcome: 'open', transaction: readTransaction(named), detail };
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  async #post(action: 'verify' | 'settle', payment: FacilitatorPayment, timeoutMs: number) {
    const path = `${this.#path}/${action}`;
    try {
      const exchange = async () => {
        const authorization = await authorizationOf(this.#credential, `POST ${this.host}${path}`);
        const headers = { 'content-type': 'application/json', ...authorization };
        const request = { path, headers, body: payment.body };
        const { status, text } = await postJson(this.#pool, request, timeoutMs);
        return { status, body: readObject(text) };
      };
      const { status, body } = await this.#calls.measure(action, exchange, callResultOf);
      if (refusesCredential(status, body)) this.#onRefused();
      return { status, body };
    } catch (error) {
      const isLate = error instanceof AnswerTimeout;
      const late = `The facilitator did not answer ${action} within ${timeoutMs} ms.`;
      const broken = `The facilitator gave no usable answer to ${action}${shownCode(error)}.`;
      throw new FacilitatorError(isLate ? late : broken, { cause: error });
    }
  }
}

/** In the order of the settings, those that hung last. */
export class Facilitators {
  readonly #all: readonly Facilitator[];
  readonly #hungUntil = new Map<Facilitator, number>();

  constructor(all: readonly Facilitator[]) {
    this.#all = all;
  }

  /**
   * Asks the next one after a failure, a refused credential, or a lack of balance, which may be of the facilitator's own
   * wallet. Only the one that has verified a payment may settle it.
   * @throws FacilitatorError of the last one
   */
  async verify(payment: FacilitatorPayment, log: FastifyBaseLogger) {
    let lacking: (Verification & { readonly facilitator: Facilitator }) | undefined;
    let failure: unknown;
    for (const facilitator of this.#inOrder()) {
      try {
        const verification = { ...(await facilitator.verify(payment)), facilitator };
        if (verification.valid && lacking)
          log.error(
            { facilitator: lacking.facilitator.host },
            'the wallet of the facilitator in this line probably lacks gas, so the payment goes to another one. Ask its operator to add gas',
          );
        if (verification.valid || verification.reason !== LACKS_BALANCE) return verification;
        lacking ??= verification;
      } catch (err) {
        if (!(err instanceof FacilitatorError)) throw err;
        log.warn(
          { err, facilitator: facilitator.host },
          'a facilitator failed to check a payment, and no money moved. The service asks the next facilitator, if there is one; check this one if it repeats',
        );
        if (err.cause instanceof AnswerTimeout) this.#hungUntil.set(facilitator, performance.now() + HUNG_MS);
        failure = err;
      }
    }
    if (lacking) return lacking;
    throw failure;
  }

  #inOrder(): Facilitator[] {
    const now = performance.now();
    const isHung = (each: Facilitator) => Number((this.#hungUntil.get(each) ?? 0) > now);
    return [...this.#all].sort((a, b) => isHung(a) - isHung(b));
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((facilitator) => facilitator.close()));
  }
}

const TOKEN_SECONDS = 120;

/** The headers for one request. A key signs as CDP wants it. @param uri as in `POST facilitator.example/x402/settle` */
export async function authorizationOf(
  credential: FacilitatorCredential | undefined,
  uri: string,
): Promise<Record<string, string>> {
  if (credential === undefined) return {};
  if (typeof credential === 'string') return { authorization: `Bearer ${credential}` };
  if ('headers' in credential) return credential.headers;
  const { id, privateKey } = credential;
  const alg = privateKey.asymmetricKeyType === 'ec' ? 'ES256' : 'EdDSA';
  const now = Math.floor(Date.now() / 1000);
  const token = new SignJWT({ sub: id, iss: 'cdp', uris: [uri] })
    .setProtectedHeader({ alg, kid: id, typ: 'JWT', nonce: randomBytes(16).toString('hex') })
    .setIssuedAt(now)
    .setNotBefore(now)
    .setExpirationTime(now + TOKEN_SECONDS);
  return { authorization: `Bearer ${await token.sign(privateKey)}` };
}

const hasResult = ({ isValid, success }: Readonly<Record<string, unknown>>): boolean =>
  isValid !== undefined || success !== undefined;

/** A result for the payment is an answer, whatever its status. */
function callResultOf({ status, body }: { status: number; body: Record<string, unknown> }): OutsideOutcome {
  if (status < 500 && hasResult(body)) return 'ok';
  return isSuccess(status) ? 'invalid' : outcomeOfStatus(status);
}

/** 401 and 403 refuse the credential, unless they contain a result for the payment. */
export const refusesCredential = (status: number, body: Readonly<Record<string, unknown>>): boolean =>
  (status === 401 || status === 403) && !hasResult(body);

function readObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = parseWithoutNulls(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {};
  } catch {
    return {};
  }
}

const isSuccess = (status: number): boolean => status >= 200 && status < 300;
const isClientError = (status: number): boolean => status >= 400 && status < 500;

/** Facilitators may omit the payer. If they name another one, they have not verified this payment. */
const isPayer = (payer: unknown, { envelope }: FacilitatorPayment): boolean =>
  payer === undefined || payer === '' || String(payer).toLowerCase() === envelope.authorization.from;

function readTransaction(named: unknown): Hex | undefined {
  const digits = typeof named === 'string' ? TRANSACTION.exec(named)?.[1] : undefined;
  return digits === undefined ? undefined : `0x${digits.toLowerCase()}`;
}

/** Callers see only a machine-readable word, because other text could be anything that the facilitator wrote. */
const reasonOf = (reason: unknown): string =>
  typeof reason === 'string' && REASON.test(reason) ? reason : 'invalid_payment';

/** One short line for the log, without signatures (R40), since the facilitator may repeat its input. */
function detailOf(status: number, ...given: readonly unknown[]): string {
  const words = given.filter((each) => typeof each === 'string').join(': ');
  const line = words.replace(/[\s\p{C}]+/gu, ' ').replace(/[0-9a-f]{65,}/gi, '…');
  return `status ${status} ${line.slice(0, MAX_DETAIL_CHARACTERS)}`.trim();
}
