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

function attempt(read) {
  try {
    return read() ?? undefined;
  } catch {
    return undefined;
  }
}

const identifierOf = (payment) => attempt(() => extractPaymentIdentifier(payment));
const paymentIn = (header) => attempt(() => JSON.parse(Buffer.from(header, 'base64').toString()));
const hash = (...parts) => parts.reduce((sum, part) => sum.update(part), createHash('sha256')).digest('hex');
const fileOf = (identifier) => join(FOLDER, hash(identifier));

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
  const fingerprint = hash(JSON.stringify([method, url, payment.accepted, payment.payload]), body);
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
  const release = async ({ paymentPayload }) => {
    reserved.delete(identifierOf(paymentPayload));
  };
  return resourceServer
    .onAfterVerify(async (context) => {
      if (!context.result.isValid) await release(context);
    })
    .onVerifyFailure(release)
    .onVerifiedPaymentCanceled(release)
    .onAfterSettle(async (context) => {
      const identifier = identifierOf(context.paymentPayload);
      const reservation = identifier && reserved.get(identifier);
      if (!reservation) return;
      const audio = context.transportContext.responseBody.toString('base64');
      writeFileSync(fileOf(identifier), JSON.stringify({ fingerprint: reservation.fingerprint, audio }));
      await release(context);
    });
}

/** Gives up a request that was refused before its payment was looked at, as when nothing that is offered was accepted. */
export function refused(header) {
  const identifier = identifierOf(paymentIn(header));
  if (identifier) reserved.delete(identifier);
}
