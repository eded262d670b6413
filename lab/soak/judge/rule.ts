/** Kinds of contradictions. The service promises that the first four never happen. */
export const KINDS = ['paid, not served', 'served, not paid', 'charged twice', 'hold left', 'other'] as const;

export type Kind = (typeof KINDS)[number];

/** A query that must return no rows. */
export interface Rule {
  readonly kind: Kind;
  readonly words: string;
  /** Selects `told`, the operation's id in table `told` or null, and `detail`. */
  readonly sql: string;
}
