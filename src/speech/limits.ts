/**
 * The longest text of the standard catalog's models, in characters (R1), as the contract tells it. What holds is the cap
 * of the model that is asked for, in `order.ts`.
 */
export const MAX_TEXT_LENGTH = 4096;
/** The longest text in a query, in characters (R4). */
export const MAX_QUERY_TEXT_LENGTH = 1500;
/** The longest id of a model or voice. */
export const MAX_NAME_LENGTH = 100;
/** Pace of a voice, where 1 is natural; a model may have a narrower range around that. */
export const SPEED = { min: 0.5, max: 2, default: 1 } as const;
