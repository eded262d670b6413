interface Rule {
  readonly expected: string;
  isValid(value: unknown): boolean;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
const hasMethod = (value: unknown, name: string): boolean => isObject(value) && typeof value[name] === 'function';

export const AMOUNT: Rule = {
  expected: 'a bigint of micro-USD, 0n or more',
  isValid: (value) => typeof value === 'bigint' && value >= 0n,
};
const BOOLEAN: Rule = { expected: 'true or false', isValid: (value) => typeof value === 'boolean' };
const FUNCTION: Rule = { expected: 'a function', isValid: (value) => typeof value === 'function' };
const SIGNAL: Rule = { expected: 'an AbortSignal', isValid: (value) => hasMethod(value, 'throwIfAborted') };

export const CLIENT_OPTIONS = {
  baseUrl: { expected: 'a URL', isValid: (value) => typeof value === 'string' && URL.canParse(value) },
  allowInsecureHttp: BOOLEAN,
  pay: { expected: 'a payment way, such as cardCredits(accountId)', isValid: (value) => hasMethod(value, 'offer') },
  maxPerRequestMicroUsd: AMOUNT,
  maxTotalMicroUsd: AMOUNT,
  budget: {
    expected: 'a budget, such as the one that openFileBudget returns',
    isValid: (value) => hasMethod(value, 'reserve'),
  },
  timeoutMs: {
    expected: 'a number of milliseconds, 0 or more',
    isValid: (value) => Number.isFinite(value) && Number(value) >= 0,
  },
  fetch: FUNCTION,
  trust: {
    expected: 'a list of pinned keys, or the value that onTrust received',
    isValid: (value) => Array.isArray(value) || (isObject(value) && 'metadata' in value),
  },
  onTrust: FUNCTION,
} as const satisfies Record<string, Rule>;

export const SPEAK_OPTIONS = { signal: SIGNAL, durable: BOOLEAN, maxMicroUsd: AMOUNT } as const;

/** Copies the options. A misspelt or invalid cap must not be ignored. @throws TypeError */
export function checkedOptions<Options extends object>(
  functionName: string,
  options: Options,
  rules: Readonly<Record<keyof Options & string, Rule>>,
): Options {
  for (const name in options) {
    if (!Object.hasOwn(rules, name)) {
      throw new TypeError(`${functionName} has no option ${name}. Its options are ${Object.keys(rules).join(', ')}.`);
    }
  }
  const checked: Partial<Options> = {};
  for (const name of Object.keys(rules) as (keyof Options & string)[]) {
    const value = options[name];
    if (value === undefined) continue;
    if (!rules[name].isValid(value)) throw new TypeError(`${functionName}: ${name} must be ${rules[name].expected}.`);
    checked[name] = value;
  }
  return checked as Options;
}
