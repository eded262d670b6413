import fc from 'fast-check';

/** How the provider treats a text; the text says so. `wav` is audio, but not what these endpoints may answer (R56). */
export type Fault = 'fine' | 'error' | 'reset' | 'cut' | 'wav';

export interface SpendTerms {
  readonly method: 'GET' | 'POST';
  /** Of the text, in characters. */
  readonly length: number;
  readonly isHd: boolean;
  /** Whether the signature permits the price. */
  readonly cap: 'ample' | 'exact' | 'below';
  readonly fault: Fault;
  /** What the provider takes. */
  readonly delayMs: number;
}

/** `back` counts from the latest request of the kind that is meant; `gateway` is the process that is preferred. */
export type Operation = { readonly gateway: number } & (
  | ({ readonly kind: 'spend'; readonly wallet: number } & SpendTerms)
  /** The very same request once more, whatever became of it or is about to. */
  | { readonly kind: 'replay'; readonly back: number }
  | { readonly kind: 'mutate'; readonly back: number; readonly what: (typeof MUTATIONS)[number] }
  /** A new request with the nonce of one that was refused. */
  | ({ readonly kind: 'reuse'; readonly back: number } & SpendTerms)
  | { readonly kind: 'read'; readonly wallet: number }
  | { readonly kind: 'deposit'; readonly wallet: number; readonly amount: number }
  | { readonly kind: 'repeat deposit'; readonly back: number }
);

const MUTATIONS = ['request', 'nonce', 'expiry', 'max-amount', 'account', 'signature'] as const;

/** A process is killed so long after the operation at this position has begun. */
export interface Kill {
  readonly position: number;
  readonly gateway: number;
  readonly delayMs: number;
}

const MIN_LENGTH = 12;
const length = (max: number) =>
  fc.oneof({ arbitrary: fc.integer({ min: MIN_LENGTH, max: 150 }), weight: 7 }, fc.integer({ min: MIN_LENGTH, max }));
const spendTerms = fc
  .record({
    method: fc.constantFrom('GET', 'POST'),
    short: length(1500),
    long: length(4096),
    isHd: fc.nat(4).map((n) => n === 0),
    cap: fc.oneof(
      { arbitrary: fc.constant('ample'), weight: 18 },
      { arbitrary: fc.constant('exact'), weight: 3 },
      fc.constant('below'),
    ),
    fault: fc.oneof(
      { arbitrary: fc.constant('fine'), weight: 21 },
      { arbitrary: fc.constant('error'), weight: 3 },
      ...(['reset', 'cut', 'wav'] as const).map((fault) => fc.constant(fault)),
    ),
    delayMs: fc.oneof({ arbitrary: fc.constant(0), weight: 2 }, fc.nat(60)),
  })
  .map(({ short, long, ...terms }) => ({ ...terms, length: terms.method === 'GET' ? short : long }) as SpendTerms);

/** What a client may do, with some wallets busier than others. */
const operation = (wallets: number): fc.Arbitrary<Operation> => {
  const wallet = fc.tuple(fc.nat(wallets - 1), fc.nat(wallets - 1)).map(([a, b]) => Math.max(a, b));
  const back = fc.oneof(fc.nat(12), fc.nat(400));
  const kind = <const K extends Operation['kind'], T>(kind: K, weight: number, terms: fc.Arbitrary<T>) => ({
    arbitrary: fc
      .tuple(fc.nat(1), terms)
      .map(([gateway, rest]) => ({ kind, gateway, ...rest }) as unknown as Operation),
    weight,
  });
  return fc.oneof(
    kind(
      'spend',
      610,
      fc.tuple(wallet, spendTerms).map(([wallet, terms]) => ({ wallet, ...terms })),
    ),
    kind('replay', 170, fc.record({ back })),
    kind('mutate', 50, fc.record({ back, what: fc.constantFrom(...MUTATIONS) })),
    kind(
      'reuse',
      50,
      fc.tuple(back, spendTerms).map(([back, terms]) => ({ back, ...terms })),
    ),
    kind('read', 70, fc.record({ wallet })),
    kind('deposit', 25, fc.record({ wallet, amount: fc.constantFrom(100_000, 300_000, 700_000) })),
    kind('repeat deposit', 25, fc.record({ back: fc.nat(20) })),
  );
};

/** The same operations for the same seed. */
export const sampleOperations = (seed: number, count: number, wallets: number): Operation[] =>
  fc.sample(operation(wallets), { seed, numRuns: count });

/** The same kills for the same seed, in the order of their positions. */
export function sampleKills(seed: number, count: number, before: number): Kill[] {
  const kill = fc.record({ position: fc.nat(before - 1), gateway: fc.nat(1), delayMs: fc.nat(80) });
  return fc.sample(kill, { seed, numRuns: count }).sort((a, b) => a.position - b.position);
}
