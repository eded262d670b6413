import type { ClawbackKind } from './processor-clawbacks.ts';

interface Meaning {
  /** The processor has taken the money back for now. */
  readonly isTaken: boolean;
  /** It changes rarely from here on, and after some weeks not at all. */
  readonly isFinal: boolean;
}

const taken = { isTaken: true, isFinal: false };
const takenAtLast = { isTaken: true, isFinal: true };
const left = { isTaken: false, isFinal: false };
const leftAtLast = { isTaken: false, isFinal: true };

/** What the processor's statuses mean for the money (R61). An inquiry, whose statuses begin with `warning`, takes none. */
const MEANINGS: Readonly<Record<ClawbackKind, Readonly<Record<string, Meaning>>>> = {
  refund: {
    pending: taken,
    succeeded: takenAtLast,
    requires_action: left,
    failed: leftAtLast,
    canceled: leftAtLast,
  },
  dispute: {
    needs_response: taken,
    under_review: taken,
    lost: takenAtLast,
    won: leftAtLast,
    warning_needs_response: left,
    warning_under_review: left,
    warning_closed: leftAtLast,
    prevented: leftAtLast,
  },
};

/** What a status means; undefined for one that this release does not know. */
export function meaningOf(kind: ClawbackKind, status: string): Meaning | undefined {
  return Object.hasOwn(MEANINGS[kind], status) ? MEANINGS[kind][status] : undefined;
}
