/** What the value of an option has to be, in words and as a check. */
interface Rule {
  readonly is: string;
  holds(value: unknown): boolean;
}

const hasMethod = (value: unknown, name: string): boolean =>
  typeof value === 'object' && value !== null && typeof (value as Record<string, unknown>)[name] === 'function';

export const AMOUNT: Rule = {
  is: 'a bigint of micro-USD, 0n or more',
  holds: (value) => typeof value === 'bigint' && value >= 0n,
};

const BOOLEAN: Rule = { is: 'true or false', holds: (value) => typeof value === 'boolean' };

const FUNCTION: Rule = { is: 'a function', holds: (value) => typeof value === 'function' };

const SIGNAL: Rule = { is: 'an AbortSignal', holds: (value) => hasMethod(value, 'throwIfAborted') };

export const CLIENT_OPTIONS = {
  baseUrl: { is: 'a URL', holds: (value) => typeof value === 'string' && URL.canParse(value) },
  allowInsecureHttp: BOOLEAN,
  pay: { is: 'a way to pay, such as cardCredits(accountId)', holds: (value) => hasMethod(value, 'offer') },
  trust: {
    is: 'a list of pinned keys, or what onTrust was given',
    holds: (value) => Array.isArray(value) || (typeof value === 'object' && value !== null && 'metadata' in value),
  },
  onTrust: FUNCTION,
  maxPerRequestMicroUsd: AMOUNT,
  maxTotalMicroUsd: AMOUNT,
  budget: { is: 'a budget, such as of openFileBudget', holds: (value) => hasMethod(value, 'reserve') },
  patienceMs: {
    is: 'a number of milliseconds, 0 or more',
    holds: (value) => Number.isFinite(value) && Number(value) >= 0,
  },
  fetch: FUNCTION,
} as const satisfies Record<string, Rule>;

export const SPEAK_OPTIONS = { signal: SIGNAL, durable: BOOLEAN, maxMicroUsd: AMOUNT } as const;

/**
 * A copy of the options that a caller gave, checked: a cap that is no amount, or whose name is misspelt, would be none.
 * @param of what takes the options, for the message
 * @throws TypeError naming the option
 */
export function checkedOptions<Options extends object>(
  of: string,
  options: Options,
  rules: Readonly<Record<keyof Options & string, Rule>>,
): Options {
  for (const name in options) {
    if (!Object.hasOwn(rules, name)) {
      throw new TypeError(`${of} has no option ${name}. Its options are ${Object.keys(rules).join(', ')}.`);
    }
  }
  const checked: Partial<Options> = {};
  for (const name of Object.keys(rules) as (keyof Options & string)[]) {
    const value = options[name];
    if (value === undefined) continue;
    if (!rules[name].holds(value)) throw new TypeError(`${of}: ${name} has to be ${rules[name].is}.`);
    checked[name] = value;
  }
  return checked as Options;
}
