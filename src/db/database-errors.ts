/** SQLSTATE classes and codes, see PostgreSQL's appendix "Error Codes". */
const AWAY_STATES = /^(08...|57P0[1-5]|57014|53...|55000|25006|25P03)$/;
/** A conflict with others, or a fault inside, maybe of one row. */
const FAILED_INSIDE_STATES = /^(40001|40P01|55006|55P03|58...|XX...)$/;
const REFUSED_STATES = /^(3D000|28...)$/;
const NOT_SET_UP_STATES = /^(42P01|42703|42883|42501|3F000)$/;
const NETWORK_ERRORS = /^(ECONN|EPIPE|ENOTFOUND|EAI_|ETIMEDOUT|EHOST|ENET|ENOENT)/;
const DRIVER_MESSAGES =
  /timeout exceeded when trying to connect|Connection terminated|Query read timeout|not queryable/;

/** True when the database could not be reached, gave no answer in time, or takes no statements at present. */
export function isAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isAway);
  const code = codeOf(error);
  return AWAY_STATES.test(code) || NETWORK_ERRORS.test(code) || DRIVER_MESSAGES.test(error.message);
}

/** True when it is away, or failed inside: the same statement may succeed later. */
export const isUnavailable = (error: unknown): boolean =>
  isAway(error) || (error instanceof Error && FAILED_INSIDE_STATES.test(codeOf(error)));

/** True when the server has no such database, or refuses our credentials. */
export const isRefused = (error: unknown): boolean => error instanceof Error && REFUSED_STATES.test(codeOf(error));

/** True when the database refuses us, or lacks our tables or our rights on them: an operator has to act. */
export const isNotSetUp = (error: unknown): boolean =>
  isRefused(error) || (error instanceof Error && NOT_SET_UP_STATES.test(codeOf(error)));

/** True when it is the database that fails, and not what it was asked to do. */
export const isDatabaseFault = (error: unknown): boolean => isUnavailable(error) || isNotSetUp(error);

/** What an error says. Node's, of several addresses that can't be reached, has a code and no message. */
export const faultOf = ({ message, code }: { message?: string; code?: string }): string | undefined => message || code;

const codeOf = (error: Error): string => String((error as { code?: unknown }).code ?? '');
