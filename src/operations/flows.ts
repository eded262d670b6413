import { failure } from '../http/structured-error.ts';

/** A flow as the parts list names it; its headers are known also while it is off. */
export interface OfferedFlow<Flow> {
  readonly headers: readonly string[];
  /** Undefined while it is off (R47). */
  readonly flow: Flow | undefined;
}

/** Refuses a request that carries one of these headers, which belong to another flow (R36); undefined when it carries none. */
export function refuseForeignHeaders(
  headers: Readonly<Record<string, string | undefined>>,
  foreign: readonly string[],
) {
  const found = foreign.find((name) => headers[name] !== undefined);
  return found === undefined
    ? undefined
    : failure('INVALID_REQUEST', `${found} belongs to another payment flow. Send the headers of one flow.`, {
        field: found,
        rule: 'one flow',
      });
}

/**
 * Tells the flow whose headers a request shows, undefined for one that shows none, or refuses it with those of two (R36).
 * @param foreign headers of flows that this endpoint does not offer
 */
export function chooseFlow<Flow>(
  flows: readonly OfferedFlow<Flow>[],
  headers: Readonly<Record<string, string | undefined>>,
  foreign: readonly string[],
) {
  const isShown = (name: string) => headers[name] !== undefined;
  const [chosen, other] = flows.filter((offered) => offered.headers.some(isShown));
  const refusal = refuseForeignHeaders(headers, foreign) ?? (other && refuseForeignHeaders(headers, other.headers));
  return refusal ? { refusal } : { chosen };
}
