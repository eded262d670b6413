import { formatUsd } from '../../lib/money.ts';
import type { BoughtSpeech } from './buy-speech.ts';
import { flowWord } from './flow-word.ts';

/** What was paid, for people. */
export function receiptLine({ bytes, receipt }: BoughtSpeech): string {
  const { flow, chargedMicroUsd, balanceMicroUsd, isReplay } = receipt;
  const left = balanceMicroUsd === null ? '' : `, ${formatUsd(balanceMicroUsd)} USD left`;
  const earlier = isReplay ? ' by an earlier request' : '';
  return `${bytes} bytes, ${formatUsd(chargedMicroUsd)} USD paid${earlier} (${flowWord(flow)})${left}`;
}
