/** What may come out of a comparison; the first four are what is promised never to happen. */
export const KINDS = ['paid, not served', 'served, not paid', 'charged twice', 'hold left', 'other'] as const;

export type Kind = (typeof KINDS)[number];

/** What must have no rows. */
export interface Rule {
  readonly kind: Kind;
  /** What a row of it means. */
  readonly words: string;
  /** A query for the id of the operation in `told` (or null) as `told`, and a `detail`. */
  readonly sql: string;
}
