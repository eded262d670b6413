import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { extractPaymentIdentifier } from '@x402/extensions/payment-identifier';

/** As in the example of the extension: how long a request whose settlement has an unknown end stays reserved. */
const RESERVED_MS = 300_000;

const FOLDER = process.env.STORE;
mkdirSync(FOLDER, { recursive: true });

/** Requests under way, by their identifiers. */
const reserved = new Map();

const identifierOf = (payment) => {
  try {
    return extractPaymentIdentifier(payment) ?? undefined;
  } catch {
    return undefined;
  }
};

const fileOf = (identifier) => join(FOLDER, createHash('sha256').update(identifier).digest('hex'));

function paymentIn(header) {
  try {
    return JSON.parse(Buffer.from(header, 'base64').toString());
  } catch {
    return undefined;
  }
}

/**
 * What the x402 project's example of the extension payment-identifier does: the audio of a settled payment is kept by
 * the payment's identifier and answers the same request again; another request with that identifier is 409, and so is
 * one that comes while the first runs. Where the example has a map and advises a store that all processes share and
 * that outlives them, this one has files.
 * @returns what to do with the request: `audio` to answer, `status` to refuse with, or neither
 */
export function begin({ method, url, body, header }) {
  const payment = header === undefined ? undefined : paymentIn(header);
  const identifier = payment && identifierOf(payment);
  if (!identifier) return {};
  const told = JSON.stringify([method, url, payment.accepted, payment.payload]);
  const fingerprint = createHash('sha256').update(told).update(body).digest('hex');
  const file = fileOf(identifier);
  if (existsSync(file)) {
    const kept = JSON.parse(readFileSync(file, 'utf8'));
    return kept.fingerprint === fingerprint ? { audio: Buffer.from(kept.audio, 'base64') } : { status: 409 };
  }
  const running = reserved.get(identifier);
  if (running && Date.now() - running.at < RESERVED_MS) return { status: 409 };
  reserved.set(identifier, { fingerprint, at: Date.now() });
  return {};
}

/** Has the resource server keep what it has settled, and give up what came to nothing. */
export function keepIn(resourceServer) {
  const release = ({ paymentPayload }) => {
    reserved.delete(identifierOf(paymentPayload));
  };
  return resourceServer
    .onAfterVerify(async (context) => {
      if (!context.result.isValid) release(context);
    })
    .onVerifyFailure(async (context) => release(context))
    .onVerifiedPaymentCanceled(async (context) => release(context))
    .onAfterSettle(async ({ paymentPayload, transportContext }) => {
      const identifier = identifierOf(paymentPayload);
      const reservation = identifier && reserved.get(identifier);
      if (!reservation) return;
      const audio = transportContext.responseBody.toString('base64');
      writeFileSync(fileOf(identifier), JSON.stringify({ fingerprint: reservation.fingerprint, audio }));
      reserved.delete(identifier);
    });
}

/** Gives up a request that was refused before its payment was looked at, as when nothing that is offered was accepted. */
export function refused(header) {
  const identifier = identifierOf(paymentIn(header));
  if (identifier) reserved.delete(identifier);
}
