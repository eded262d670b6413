import { isNotSetUp, isRefused, isUnavailable } from '../db/database-errors.ts';
import { failure } from './structured-error.ts';

// The 503 of what the operator has not set up, or what is unavailable to the whole service. They say how to recover (R47).

/** Tables may be missing at the start, or be dropped later. Undefined if the error is not the database's. */
export function databaseNotReady(error: unknown) {
  if (isRefused(error)) {
    const message =
      'The database refuses the connection of the service. The operator must correct DATABASE_URL, or the access rights in the database. details.payment, if present, says whether you were charged. Retry later: with x402, repeat the identical request; with card credit, read the balance first.';
    return failure('CONFIG_ERROR', message, { reason: 'database_refused', setting: 'DATABASE_URL' });
  }
  if (isNotSetUp(error)) {
    const message =
      "The database lacks the service's tables or rights. The operator must run npm run migrate. details.payment, if present, says whether you were charged.";
    return failure('CONFIG_ERROR', message, { reason: 'database_not_set_up', command: 'npm run migrate' });
  }
  if (isUnavailable(error)) {
    const details = { reason: 'database_unavailable' };
    const message =
      'The database of the service is unavailable; details.payment, if present, says whether you were charged. Retry in a moment: with x402, repeat the identical request; with card credit, read the balance first.';
    return failure('CONFIG_ERROR', message, details);
  }
  return undefined;
}

export const AUDIO_STORE_UNAVAILABLE = failure(
  'CONFIG_ERROR',
  'The audio store is unavailable. Retry in a moment; fetching audio costs nothing.',
  { reason: 'audio_store_unavailable' },
);

export const PROVIDER_OFF = failure(
  'TTS_PROVIDER_NOT_CONFIGURED',
  'No speech provider is set up here. Ask the operator. You were not charged.',
  {
    setting: 'SPEECH_BASE_URL',
  },
);

export const CARD_OFF = failure(
  'CONFIG_ERROR',
  'Payment by card is not set up here. Ask the operator, or pay another way. You were not charged.',
  {
    setting: 'STRIPE_SECRET_KEY',
  },
);

export const FEEDBACK_OFF = failure('CONFIG_ERROR', 'Feedback is not set up here. Ask the operator how to send it.', {
  setting: 'FEEDBACK_SECRET',
});

export const PAYMENT_OFF = failure(
  'CONFIG_ERROR',
  'Payment in USDC is not set up here. Ask the operator, or pay another way. Nothing is charged while it is off.',
  { setting: 'X402_PAY_TO' },
);

export const QUOTES_OFF = failure(
  'CONFIG_ERROR',
  'Quotes are not set up here. Ask the operator, or send the text without a quote. A quote costs nothing.',
  { setting: 'QUOTE_SECRET' },
);

/** A challenge that can't be paid would mislead, so it is refused like a payment. */
export const CHAIN_OFF = failure(
  'CONFIG_ERROR',
  'Payment on the chain is not set up here. Ask the operator, or pay another way. Nothing is charged while it is off.',
  {
    setting: 'X402_RPC_URL',
  },
);

/** A signature of the configured domain would not be valid. */
export const OTHER_DOMAIN = failure(
  'CONFIG_ERROR',
  "The USDC token's EIP-712 domain is not the one in the settings. The operator must correct X402_ASSET_NAME, X402_ASSET_VERSION or X402_ASSET. This request was not charged.",
  { reason: 'token_domain', setting: 'X402_ASSET_NAME' },
);

export const metadataOff = (setting: 'SIGNING_KEYS_FILE' | 'X402_PAY_TO') =>
  failure('CONFIG_ERROR', 'Signed metadata is not set up here. Ask the operator to set it up.', { setting });

export const SIGNING_KEY_EXPIRED = failure(
  'CONFIG_ERROR',
  'The key that signs the metadata has expired. Ask the operator to rotate it, and sign no payment until then.',
  { setting: 'SIGNING_KEYS_FILE', reason: 'signing_key_expired' },
);
