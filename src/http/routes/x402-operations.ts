import type { CredentialChecks, X402Operations } from '../../contract/operations.ts';
import { DIRECT_HEADERS } from '../../payments/direct/direct-payment.ts';
import type { DepositReplays, Deposits } from '../../payments/prepaid/deposits.ts';
import type { PrepaidBalance } from '../../payments/prepaid/prepaid-balance.ts';
import { depositResource, speechResource } from '../../payments/x402/challenge.ts';
import type { ServiceMetadata } from '../../payments/x402/metadata.ts';
import { PREPAID_SIGNING } from '../../payments/x402/signed-types.ts';
import {
  CHAIN_OFF,
  metadataOff,
  OTHER_DOMAIN,
  PAYMENT_OFF,
  QUOTES_OFF,
  SIGNING_KEY_EXPIRED,
} from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { isAnswer } from '../structured-error.ts';
import { makeDeposit, type OfferedDeposits } from './deposits.ts';
import { pausedAnswer, refuseForeignDatabase, refuseForeignHeaders } from './flows.ts';
import { issueQuote, selectQuoted } from './issue-quote.ts';
import { readPrepaidAccount } from './prepaid-account.ts';
import { getPrepaidAudio, type PrepaidAudioLinks } from './prepaid-audio.ts';
import { X402Speech, type X402SpeechOptions } from './x402-speech.ts';

export interface X402Options extends Omit<X402SpeechOptions, 'refuseOnChain' | 'resources' | 'links'> {
  readonly serviceName: string;
  /** Undefined while x402 payment is off, or without a chain node (R58). */
  readonly deposits: Deposits | undefined;
  readonly depositReplays: DepositReplays;
  /** Whether the token's EIP-712 domain is another than the configured one. */
  readonly hasOtherDomain: () => Promise<boolean>;
  readonly prepaid: PrepaidBalance | undefined;
  readonly prepaidAudio: PrepaidAudioLinks;
  readonly metadata: ServiceMetadata | undefined;
}

/** Speech paid in USDC, deposits, quotes and signed metadata. */
export function x402Operations(options: X402Options): {
  readonly operations: X402Operations<OperationContext>;
  readonly credentialChecks: CredentialChecks<OperationContext>;
} {
  const { serviceName, catalog, terms, deposits, depositReplays, prepaid, prepaidAudio, quotes, metadata } = options;
  const { databaseIdentity, flows, foreignHeaders, pauses } = options;
  const { baseUrl } = prepaidAudio;
  const depositsOnChain = async () => {
    if (!deposits) return CHAIN_OFF;
    return (await options.hasOtherDomain()) ? OTHER_DOMAIN : deposits;
  };
  const speech = new X402Speech({
    ...options,
    links: prepaidAudio,
    refuseOnChain: async () => {
      const onChain = await depositsOnChain();
      return isAnswer(onChain) ? onChain : undefined;
    },
    resources: {
      GET: speechResource(baseUrl, serviceName, 'GET'),
      POST: speechResource(baseUrl, serviceName, 'POST'),
    },
  });
  const depositOf = depositResource(baseUrl, serviceName);
  // R36: the headers that each operation refuses beside its own.
  const allHeaders = [...foreignHeaders, ...flows.flatMap(({ headers }) => headers)];
  const headersBut = (own: readonly string[]) => allHeaders.filter((name) => !own.includes(name));
  const besidePrepaid = headersBut(PREPAID_SIGNING.headers);
  const besideDeposit = { always: foreignHeaders, withPayment: headersBut(DIRECT_HEADERS) };

  async function offerDeposits(isPaid: boolean): Promise<OfferedDeposits> {
    if (!terms) return PAYMENT_OFF;
    const onChain = await depositsOnChain();
    if (isAnswer(onChain)) return onChain;
    const foreign = await refuseForeignDatabase(databaseIdentity, isPaid);
    if (foreign) return foreign;
    return pauses.has('deposit') ? pausedAnswer('deposit') : { terms, deposits: onChain };
  }

  return {
    operations: {
      createX402Speech: ({ body, headers }, context) => speech.answer('POST', { asked: body, headers }, context),

      getX402Speech: ({ query, headers }, context) => speech.answer('GET', { asked: query, headers }, context),

      getPrepaidAccount: async (request, context) => {
        if (!prepaid) return PAYMENT_OFF;
        const foreign = await refuseForeignDatabase(databaseIdentity, true);
        return foreign ?? readPrepaidAccount(prepaid, besidePrepaid, request, context);
      },

      getPrepaidAudio: (request, context) => getPrepaidAudio(prepaidAudio, request, context),

      createDeposit: async (request, context) => {
        const offered = await offerDeposits(request.headers['payment-signature'] !== undefined);
        const parts = { resource: depositOf, offered, replays: depositReplays, foreignHeaders: besideDeposit };
        return makeDeposit(parts, request, context);
      },

      createQuote: async ({ body }, context) => {
        const mixed = refuseForeignHeaders(context, foreignHeaders);
        if (mixed) return mixed;
        const selected = selectQuoted(catalog, body);
        if (isAnswer(selected)) return selected;
        if (!terms) return PAYMENT_OFF;
        if (!quotes) return QUOTES_OFF;
        const foreign = await refuseForeignDatabase(databaseIdentity, false);
        return foreign ?? issueQuote(quotes, terms, selected.selection, body);
      },

      getServiceMetadata: async () => {
        if (!metadata) return metadataOff(terms ? 'SIGNING_KEYS_FILE' : 'X402_PAY_TO');
        const foreign = await refuseForeignDatabase(databaseIdentity, false);
        if (foreign) return foreign;
        const signed = await metadata.read();
        if (!signed) return SIGNING_KEY_EXPIRED;
        const { document, maxAgeSeconds } = signed;
        return { status: 200, headers: { 'cache-control': `public, max-age=${maxAgeSeconds}` }, body: document };
      },
    },
    credentialChecks: {
      createX402Speech: ({ body, headers }, context) => speech.hasVerifiedCredential({ asked: body, headers }, context),
      getX402Speech: ({ query, headers }, context) => speech.hasVerifiedCredential({ asked: query, headers }, context),
    },
  };
}
