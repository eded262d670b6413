import { AudioLostError, ServiceUnavailableError } from './errors.ts';
import { fetchAudio } from './fetch-audio.ts';
import type { Outcome, Reader } from './outcome.ts';
import { faultOf, isPassing, serviceError } from './service-error.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/** What the answer to a prepaid request tells. The audio is read to its end: until then it may have to be recovered. */
export const readPrepaid: Reader<Speech> = async (asked) => {
  const { pending, answer, service, signal } = asked;
  const { response, body, error: errorBody } = answer;
  const charged = microUsd(response.headers.get('x-x402-charged'));
  const receipt: Receipt = {
    flow: 'prepaid',
    chargedMicroUsd: charged ?? BigInt(pending.maxMicroUsd),
    balanceMicroUsd: microUsd(response.headers.get('x-x402-balance')),
    identifier: pending.identifier,
    transaction: null,
    isReplay: false,
    traceId: response.headers.get('x-trace-id') ?? '',
  };
  if (response.ok) {
    const bytes = await collect(audioStream(response, body));
    const speech = wholeSpeech(bytes, audioType(response), receipt);
    return { outcome: 'bought', bought: speech, chargedMicroUsd: receipt.chargedMicroUsd };
  }
  const fault = faultOf(response, errorBody);
  const { retryAfterSeconds } = fault;
  const error = serviceError(fault);
  const { state, chargedMicroUsd, audio, field } = fault.details ?? {};
  const isAnswered = fault.code === 'PREPAID_NONCE_REPLAYED' && typeof state === 'string';
  if (isAnswered && state === 'restored') {
    return { outcome: 'refused', isSure: true, again: 'anew', error: new ServiceUnavailableError(fault) };
  }
  if (isAnswered && state === 'charged') {
    const money = { chargedMicroUsd: BigInt(chargedMicroUsd as number), maxMicroUsd: BigInt(pending.maxMicroUsd) };
    const replay = { ...receipt, chargedMicroUsd: money.chargedMicroUsd, isReplay: true };
    if (typeof audio === 'string') {
      return { outcome: 'bought', bought: await fetchAudio(audio, replay, { service, signal }), ...money };
    }
    const message = `${pending.identifier} was charged, and its audio is kept no longer.`;
    return { outcome: 'lost', error: new AudioLostError(message, money), ...money };
  }
  return refused();

  function refused(): Outcome<Speech> {
    const told = { error, retryAfterSeconds };
    const isExpired = fault.status === 400 && field === 'x-x402-expiry';
    if (isExpired) return { outcome: 'refused', isSure: true, ...told };
    if (fault.status === 401) return { outcome: 'refused', again: 'metadata', ...told };
    if (fault.status === 429 || fault.status === 408) return { outcome: 'refused', again: 'identical', ...told };
    if (fault.status === 409) return { outcome: 'unknown', cause: error, retryAfterSeconds };
    if (fault.status < 500) return { outcome: 'refused', ...told };
    // The nonce is spent, and its debit was restored; without the header that is not known yet.
    if (charged !== 0n) return { outcome: 'unknown', cause: error, retryAfterSeconds };
    return { outcome: 'refused', isSure: true, ...(isPassing(fault) && { again: 'anew' }), ...told };
  }
};

const microUsd = (header: string | null): bigint | null =>
  header !== null && /^\d{1,18}$/.test(header) ? BigInt(header) : null;
