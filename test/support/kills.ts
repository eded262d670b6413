/**
 * Where the proofs end a process as by kill -9: the steps of the code (src/lib/test-point.ts) by the proof that kills at
 * them. test/lib/steps.test.ts holds this list against the code. A proof has a case for each of its steps and no other,
 * which the compiler holds: it takes them by `killCases`.
 */
export const KILLS = {
  'test/faults/card-kill.proof.test.ts': [
    'stream held',
    'stream failed',
    'whole speech spoken',
    'whole speech captured',
    'stream broken off',
    'stream spoken',
    'stream captured',
  ],
  'test/faults/prepaid-kill.proof.test.ts': [
    'speech held',
    'speech spoken',
    'speech captured',
    'speech failed',
    'answer lost',
    'lost answer noted',
    'lost answer in the store',
  ],
  'test/faults/x402-kill.proof.test.ts': [
    'x402 reserved',
    'x402 audio stored',
    'x402 settle answered',
    'x402 settled',
    'x402 settling',
  ],
  'test/faults/deposit-kill.proof.test.ts': [
    'deposit reserved',
    'x402 settling',
    'x402 settle answered',
    'deposit awaited',
    'x402 settled',
  ],
  'test/jobs/kill.proof.test.ts': [
    'job accepting',
    'job accepted',
    'job claimed',
    'job spoken',
    'job stored',
    'job completed',
    'job retry',
    'job failed',
    'job given back',
  ],
} as const;

export type KillProof = keyof typeof KILLS;

/** The steps at which a proof kills. */
export type KillOf<Proof extends KillProof> = (typeof KILLS)[Proof][number];

/** A step at which some proof kills. */
export type Kill = KillOf<KillProof>;

/** The cases of a proof: what it needs to know of each step that the list says it kills at, in its own order. */
export const killCases = <Proof extends KillProof, Case>(
  _proof: Proof,
  cases: Readonly<Record<KillOf<Proof>, Case>>,
): [KillOf<Proof>, Case][] => Object.entries(cases) as [KillOf<Proof>, Case][];
