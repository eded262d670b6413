import { setTimeout as sleep } from 'node:timers/promises';

const UNAVAILABLE_STATES = /^(08...|57P0[1-5]|57014|53...|55000|25006|25P03)$/;
const FAILED_INSIDE_STATES = /^(40001|40P01|55006|55P03|58...|XX...)$/;
const REFUSED_STATES = /^(3D000|28...)$/;
const NOT_SET_UP_STATES = /^(42P01|42703|42883|42501|3F000)$/;
const NETWORK_ERRORS = /^(ECONN|EPIPE|ENOTFOUND|EAI_|ETIMEDOUT|EHOST|ENET|ENOENT)/;
const DRIVER_MESSAGES =
  /timeout exceeded when trying to connect|Connection terminated|Query read timeout|not queryable/;

/** True if the database is unreachable, timed out, or accepts no statements at present. */
export function isConnectionError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isConnectionError);
  const code = codeOf(error);
  return UNAVAILABLE_STATES.test(code) || NETWORK_ERRORS.test(code) || DRIVER_MESSAGES.test(error.message);
}

/** True if the same statement may succeed later. */
export const isUnavailable = (error: unknown): boolean =>
  isConnectionError(error) || (error instanceof Error && FAILED_INSIDE_STATES.test(codeOf(error)));

export const isRefused = (error: unknown): boolean => error instanceof Error && REFUSED_STATES.test(codeOf(error));

/** True if an operator must act: the database refuses the login, or lacks tables or rights. */
export const isNotSetUp = (error: unknown): boolean =>
  isRefused(error) || (error instanceof Error && NOT_SET_UP_STATES.test(codeOf(error)));

export const isDatabaseFault = (error: unknown): boolean => isUnavailable(error) || isNotSetUp(error);

export const faultOf = ({ message, code }: { message?: string; code?: string }): string | undefined => message || code;

const codeOf = (error: Error): string => String((error as { code?: unknown }).code ?? '');

const RETRY_EVERY_MS = 250;

/** Retries a statement that is safe to repeat while the database is unavailable, for at most `timeoutMs`. */
export async function retryOnDbUnavailable<T>(timeoutMs: number, statement: () => Promise<T>): Promise<T> {
  for (const giveUpAt = performance.now() + timeoutMs; ; await sleep(RETRY_EVERY_MS)) {
    try {
      return await statement();
    } catch (error) {
      if (!isUnavailable(error) || performance.now() >= giveUpAt) throw error;
    }
  }
}
