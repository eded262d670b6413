/**
 * Where the proofs end a process as by kill -9: the steps of the code (src/lib/test-point.ts) by the proof that kills at
 * them. test/lib/steps.test.ts holds this list against the code. A proof has a case for each of its steps and no other,
 * which the compiler holds: it takes them by `killCases`.
 */
export const KILL_POINTS = {
  'test/faults/card-kill.test.ts': [
    'speech held',
    'speech failed',
    'whole speech spoken',
    'stream spoken',
    'stream broken off',
    'answer delivered',
    'hold captured',
  ],
  'test/faults/prepaid-kill.test.ts': [
    'speech held',
    'speech failed',
    'speech spoken',
    'answer delivered',
    'hold captured',
    'prepaid audio kept',
  ],
  'test/faults/x402-kill.test.ts': [
    'x402 reserved',
    'x402 not admitted',
    'speech held',
    'speech failed',
    'speech spoken',
    'x402 audio not stored',
    'audio appended',
    'x402 audio stored',
    'x402 settle answered',
    'x402 proved',
    'x402 settled',
    'x402 unknown',
    'x402 refused',
    'x402 settling',
  ],
  'test/faults/deposit-kill.test.ts': [
    'deposit reserved',
    'x402 settling',
    'x402 settle answered',
    'deposit awaited',
    'x402 settled',
  ],
  'test/jobs/kill.test.ts': [
    'job accepting',
    'job accepted',
    'job claimed',
    'job spoken',
    'job stored',
    'job completed',
    'job retry',
    'job failed',
    'job given back',
    'job taken over',
    'audio written',
    'audio renamed',
  ],
  'test/jobs/long.test.ts': ['segment stored', 'segment recorded'],
  'test/payments/top-up/kill.test.ts': [
    'purchase recorded',
    'checkout opened',
    'purchase open',
    'session read',
    'credit booked',
    'purchase credited',
    'refund asked',
    'refund made',
    'refund booked',
  ],
  'test/reconcile/kill.test.ts': [
    'turn taken',
    'expired holds voided',
    'debtor found',
    'purchase claimed',
    'purchase unpaid',
    'page unread',
    'page handled',
    'clawback listed',
    'clawback written',
    'debt made',
    'clawback booked',
    'clawback claimed',
    'clawback told',
  ],
  'test/reconcile/kill-stored.test.ts': [
    'reservation taken over',
    'stored minute deleted',
    'doubtful payment claimed',
    'doubtful payment found',
    'failed payment claimed',
    'failed payment found',
    'received payment settling',
    'unrecorded transfer decided',
    'jobs queued again',
    'jobs taken over',
    'lost jobs entered',
    'job audio deleted',
  ],
  'test/feedback/kill.test.ts': ['feedback written', 'feedback stored', 'mail claimed', 'mail sent', 'mail recorded'],
} as const;

export type KillProof = keyof typeof KILL_POINTS;

/** The steps at which a proof kills. */
export type KillOf<Proof extends KillProof> = (typeof KILL_POINTS)[Proof][number];

/** A step at which some proof kills. */
export type Kill = KillOf<KillProof>;

/** The cases of a proof: what it needs to know of each step that the list says it kills at, in its own order. */
export const killCases = <Proof extends KillProof, Case>(
  _proof: Proof,
  cases: Readonly<Record<KillOf<Proof>, Case>>,
): [KillOf<Proof>, Case][] => Object.entries(cases) as [KillOf<Proof>, Case][];
