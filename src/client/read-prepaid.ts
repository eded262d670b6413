import { fetchAudio } from './fetch-audio.ts';
import type { Reader } from './outcome.ts';
import { paymentReport } from './payment-report.ts';
import { chargedWithin } from './pending-purchase.ts';
import { readMicroUsd } from './price.ts';
import { readRefusal } from './read-refusal.ts';
import { faultOf, traceIdOf } from './service-error.ts';
import type { Receipt, Speech } from './speech.ts';
import { audioStream, audioType, collect, wholeSpeech } from './speech-of.ts';

/** What the answer to a prepaid request tells. The audio is read to its end: until then it may have to be recovered. */
export const readPrepaid: Reader<Speech> = async (asked) => {
  const { pending, answer, service, signal } = asked;
  const { response, body, error: errorBody } = answer;
  const receipt: Receipt = {
    flow: 'prepaid',
    chargedMicroUsd: chargedWithin(readMicroUsd(response.headers.get('x-x402-charged')), pending),
    balanceMicroUsd: readMicroUsd(response.headers.get('x-x402-balance')),
    identifier: pending.identifier,
    transaction: null,
    isReplay: false,
    traceId: traceIdOf(response),
  };
  if (response.ok) {
    const bytes = await collect(audioStream(response, body));
    const speech = wholeSpeech(bytes, audioType(response), receipt);
    return { outcome: 'bought', bought: speech, chargedMicroUsd: receipt.chargedMicroUsd };
  }
  const { details } = faultOf(response, errorBody);
  const payment = paymentReport(details);
  if (payment?.state !== 'charged' || typeof details?.audio !== 'string') return readRefusal(asked);
  const chargedMicroUsd = chargedWithin(payment.amountMicroUsd, pending);
  const { audio } = details;
  const bought = await fetchAudio(audio, { ...receipt, chargedMicroUsd, isReplay: true }, { service, pending, signal });
  return { outcome: 'bought', bought, chargedMicroUsd };
};
