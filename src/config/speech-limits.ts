/** In characters (R1), for the standard catalog; the requested model's own cap applies. */
export const MAX_TEXT_LENGTH = 4096;
export const MAX_QUERY_TEXT_LENGTH = 1500;
/** Texts of at least this length are always asynchronous (R6). */
export const ASYNC_TEXT_LENGTH = 20_000;
export const MAX_NAME_LENGTH = 100;
/** Speaking rate, where 1 is natural, and the default that counts; a model may narrow the range (R42). */
export const SPEED = { min: 0.5, max: 2, default: 1 } as const;
