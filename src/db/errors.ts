/** SQLSTATE classes and codes, see PostgreSQL's appendix "Error Codes". */
const UNAVAILABLE_STATES = /^(08...|40001|40P01|57P0[1-5]|57014|53...|55000|55006|55P03|58...|25006|25P03|XX...)$/;
const NOT_SET_UP_STATES = /^(42P01|42703|42883|3D000|3F000|28...)$/;
const NETWORK_ERRORS = /^(ECONN|EPIPE|ENOTFOUND|EAI_|ETIMEDOUT|EHOST|ENET|ENOENT)/;
const DRIVER_MESSAGES =
  /timeout exceeded when trying to connect|Connection terminated|Query read timeout|not queryable/;

/**
 * True when the database could not be reached, gave no answer in time, failed inside, or takes no statements at present:
 * the same statement may succeed later.
 */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code = String((error as { code?: unknown }).code ?? '');
  if (error instanceof AggregateError) return error.errors.some(isUnavailable);
  return UNAVAILABLE_STATES.test(code) || NETWORK_ERRORS.test(code) || DRIVER_MESSAGES.test(error.message);
}

/** True when the database answers but lacks our tables, or refuses our credentials: an operator has to act. */
export function isNotSetUp(error: unknown): boolean {
  return error instanceof Error && NOT_SET_UP_STATES.test(String((error as { code?: unknown }).code ?? ''));
}
