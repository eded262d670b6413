import { canonicalQuery } from '../../lib/canonical-query.ts';
import { serviceWords } from '../../lib/service-words.ts';
import { PREPAID_SIGNING, PREPAID_TYPES } from '../../payments/x402/signed-types.ts';
import { readJson } from './api.ts';
import { priceOf, rateOf, readMicroUsd } from './catalog.ts';
import { currentPayee, mismatchError } from './challenge.ts';
import { ServiceError, UntrustedError } from './errors.ts';
import type { Balance, Offer, PaymentWay, Service, Terms, Wallet } from './payment-way.ts';
import { boundedCharge, X402_TARGET } from './pending-purchase.ts';
import { bought, fetchAudio, receiptOf } from './read-speech.ts';
import type { Reader } from './retry-until-resolved.ts';
import { faultOf, readRefusal, serviceError } from './service-error.ts';
import { audioStream, audioType, collect, type Speech, type SpeechOrder, wholeSpeech } from './speech.ts';
import { type Metadata, requireMetadata } from './trusted-metadata.ts';

/** In the order of the values below. */
const HEADERS = PREPAID_SIGNING.headers;
/** Below the service's limit, in case the local clock is ahead. */
const LIFETIME_SECONDS = 100;

/** Pays from the wallet's prepaid balance, with one signature per request. */
export function prepaid(wallet: Wallet): PaymentWay {
  return {
    flow: 'prepaid',
    wallet,
    offer: (order, terms) => offer(wallet, order, terms),
    balance: (service, signal) => balance(wallet, service, signal),
  };
}

async function offer(wallet: Wallet, order: SpeechOrder, terms: Terms): Promise<Offer> {
  const { baseUrl, catalog, signal } = terms;
  const trusted = requireMetadata(terms.metadata);
  const model = await catalog.modelOf(order, signal);
  const maxMicroUsd = priceOf(order.text, await rateOf(model, terms));
  const metadata = await trusted.read(signal);
  const method = 'POST' as const;
  const body = JSON.stringify({ ...order, text: order.text.trim(), model });

  async function sign() {
    const call = { method, target: X402_TARGET, body, maxMicroUsd };
    const { headers, nonce, expiry } = await signPrepaid(wallet, metadata, call);
    return {
      flow: 'prepaid' as const,
      kind: 'speech' as const,
      identifier: nonce,
      baseUrl,
      method,
      target: X402_TARGET,
      headers: { 'content-type': 'application/json', ...headers },
      body,
      maxMicroUsd: String(maxMicroUsd),
      expiresAt: expiry,
    };
  }
  return { maxMicroUsd, sign };
}

/** Reads the whole audio, because a cut response has to be fetched again by its link. */
export const readPrepaid: Reader<Speech> = async (paid) => {
  const { pending, response, body } = paid;
  const errorBody = withClockWords(response, paid.errorBody);
  const balanceMicroUsd = readMicroUsd(response.headers.get('x-x402-balance'));
  if (response.ok) {
    const bytes = await collect(audioStream(response, body));
    const chargedMicroUsd = boundedCharge(readMicroUsd(response.headers.get('x-x402-charged')), pending);
    return bought(wholeSpeech(bytes, audioType(response), { ...receiptOf(paid, chargedMicroUsd), balanceMicroUsd }));
  }
  const { details, payment } = serviceError(faultOf(response, errorBody));
  if (payment?.state !== 'charged' || typeof details?.audio !== 'string') return readRefusal({ ...paid, errorBody });
  const receipt = receiptOf(paid, boundedCharge(payment.amountMicroUsd, pending));
  return bought(await fetchAudio(details.audio, { ...receipt, balanceMicroUsd, isReplay: true }, paid));
};

async function balance(wallet: Wallet, service: Service, signal?: AbortSignal): Promise<Balance> {
  const metadata = requireMetadata(service.metadata);
  const { address } = wallet;
  const readBalance = async (isRefreshed: boolean): Promise<bigint> => {
    const payload = await (isRefreshed ? metadata.refresh(signal) : metadata.read(signal));
    const target = `/x402/accounts/${address}`;
    const { headers } = await signPrepaid(wallet, payload, { method: 'GET', target, body: '', maxMicroUsd: 0n });
    const { balanceMicroUsd } = await readJson(signal, { balanceMicroUsd: 'amount' }, async (signal) => {
      const params = { path: { address } };
      const result = await service.api.GET('/x402/accounts/{address}', { params, headers, signal });
      return { ...result, error: withClockWords(result.response, result.error) };
    });
    return BigInt(balanceMicroUsd);
  };
  const balanceMicroUsd = await readBalance(false)
    .catch((error) => (statusOf(error) === 401 ? readBalance(true) : Promise.reject(error)))
    .catch((error) => (statusOf(error) === 404 ? 0n : Promise.reject(error)));
  return { flow: 'prepaid', account: address, balanceMicroUsd };
}

const statusOf = (error: unknown) => (error instanceof ServiceError ? error.status : undefined);

/** The expiry that a client signs is wrong only if its clock is. */
function withClockWords({ headers }: Response, body: unknown): unknown {
  const { error } = (body ?? {}) as { error?: { message?: unknown; details?: { field?: unknown } | null } };
  if (error?.details?.field !== 'x-x402-expiry') return body;
  const aheadSeconds = Math.round((Date.now() - Date.parse(headers.get('date') ?? '')) / 1000);
  const direction = aheadSeconds < 0 ? 'behind' : 'ahead of';
  const words = Number.isNaN(aheadSeconds)
    ? 'Check the clock of this machine.'
    : `The clock of this machine is ${Math.abs(aheadSeconds)} s ${direction} the service's clock. Correct it.`;
  return { error: { ...error, message: `${serviceWords(String(error.message))} ${words}` } };
}

interface PrepaidCall {
  readonly method: 'GET' | 'POST';
  readonly target: string;
  readonly body: string;
  readonly maxMicroUsd: bigint;
}

export async function signPrepaid(wallet: Wallet, metadata: Metadata, call: PrepaidCall) {
  // Loaded here: it takes longer than the start of a program that pays by card.
  const { keccak256, toHex } = await import('./keccak.ts');
  return signPrepaidRequest(wallet, metadata, call, (text) => keccak256(toHex(text)));
}

/**
 * Signs a request as documented in docs/api.md.
 * @throws UntrustedError when the metadata requires another scheme
 * @public codegen/client-script.ts bundles it
 */
export async function signPrepaidRequest(
  wallet: Wallet,
  metadata: Pick<Metadata, 'payment' | 'prepaid'>,
  call: PrepaidCall,
  hash: (text: string) => string,
  nowMs = Date.now(),
) {
  const { scheme, primaryType, domainName, domainVersion, chainId, headers } = metadata.prepaid.authentication;
  if (scheme !== 'eip712' || primaryType !== 'PrepaidRequest' || headers.join() !== HEADERS.join()) {
    throw new UntrustedError(
      'wrong_version',
      'This client does not support prepaid.authentication of the metadata. Update the client. Nothing was signed.',
    );
  }
  if (metadata.payment.network !== `eip155:${chainId}`) {
    throw mismatchError(
      'wrong_network',
      `In the signed metadata, prepaid.authentication.chainId is ${chainId}, but payment.network is ${metadata.payment.network}.`,
    );
  }
  const nonce = crypto.randomUUID();
  const expiry = Math.floor(nowMs / 1000) + LIFETIME_SECONDS;
  const message = {
    account: wallet.address,
    method: call.method,
    path: call.target.split('?', 1)[0] as string,
    bodyHash: hash(call.method === 'POST' ? call.body : canonicalQuery(call.target)),
    maxAmountMicroUsd: call.maxMicroUsd,
    nonce,
    expiry: BigInt(expiry),
  };
  const verifyingContract = currentPayee(metadata) as Wallet['address'];
  const signature = await wallet.signTypedData({
    domain: { name: domainName, version: domainVersion, chainId, verifyingContract },
    types: PREPAID_TYPES,
    primaryType: 'PrepaidRequest',
    message,
  });
  const values = [message.account, nonce, expiry, call.maxMicroUsd, signature];
  return { headers: Object.fromEntries(HEADERS.map((name, at) => [name, String(values[at])])), nonce, expiry };
}
