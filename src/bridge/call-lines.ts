import { formatUsd } from '../lib/money.ts';
import type { Call } from './speech-call.ts';

const ENDS = { spoken: '', left: 'the program left', broken: 'broke off', refused: 'refused' };

/** Tells of each request for speech in a line, with the running total. Never of what was spoken. */
export class CallLines {
  #totalMicroUsd = 0n;

  /** What the requests so far have cost, in micro-USD. */
  get totalMicroUsd(): bigint {
    return this.#totalMicroUsd;
  }

  /** @param time of the day */
  line({ asked, spokenWith, end, chargedMicroUsd, leftMicroUsd, error }: Call, time: string): string {
    this.#totalMicroUsd += chargedMicroUsd;
    return [
      time,
      `$${formatUsd(chargedMicroUsd)}`,
      asked && `${asked.characters} characters as ${asked.format}`,
      spokenWith && voiceOf(spokenWith, asked?.voice),
      ENDS[end],
      error && `${error.code}: ${error.message}`,
      `total $${formatUsd(this.#totalMicroUsd)}`,
      leftMicroUsd !== null && `left $${formatUsd(leftMicroUsd)}`,
    ]
      .filter(Boolean)
      .join('  ');
  }
}

/** Names it beside the one that was asked for, where another one stands in for that. */
function voiceOf({ model, voice }: NonNullable<Call['spokenWith']>, asked: string | undefined): string {
  const isOther = asked !== undefined && asked !== voice && !voice.endsWith(`_${asked}`);
  return `${model} ${voice}${isOther ? ` for ${asked}` : ''}`;
}
