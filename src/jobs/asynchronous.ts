/** Texts of this length or more are spoken asynchronously, whether or not the caller asked for it (R6). */
export const ASYNC_TEXT_LENGTH = 20_000;

/** Whether a request becomes a job. Characters are those of R1. */
export function isAsynchronous(asked: boolean, characters: number): boolean {
  return asked || characters >= ASYNC_TEXT_LENGTH;
}
