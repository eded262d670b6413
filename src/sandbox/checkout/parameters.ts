import { invalidParameter } from './api-error.ts';
import type { Branch } from './form.ts';

/**
 * Takes parameters out of a branch one by one, each by its rule, and then refuses what nobody took. An empty value
 * counts as absent, as with Stripe. Throws ApiError that names the parameter.
 */
export class Parameters {
  readonly #branch: Branch;
  readonly #path: string;

  constructor(branch: Branch, path = '') {
    this.#branch = new Map(branch);
    this.#path = path;
  }

  /** The parameter's name as the form spells it. */
  name(name: string): string {
    return this.#path ? `${this.#path}[${name}]` : name;
  }

  text(name: string, maxLength: number): string | undefined {
    const value = this.#take(name);
    if (value === undefined || value === '') return undefined;
    if (typeof value !== 'string') throw this.#invalid(name, 'parameter_invalid', 'must be a single value');
    if (value.length > maxLength) {
      throw this.#invalid(name, 'parameter_invalid_string', `must be at most ${maxLength} characters long`);
    }
    return value;
  }

  choice<const Choice extends string>(name: string, choices: readonly Choice[]): Choice | undefined {
    const value = this.text(name, 100);
    const chosen = choices.find((choice) => choice === value);
    if (value !== undefined && chosen === undefined) {
      throw this.#invalid(name, 'parameter_invalid', `must be one of: ${choices.join(', ')}`);
    }
    return chosen;
  }

  integer(name: string, min: number, max: number): number | undefined {
    const value = this.text(name, 100);
    if (value === undefined) return undefined;
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= min && number <= max)) {
      throw this.#invalid(name, 'parameter_invalid_integer', `must be a whole number from ${min} to ${max}`);
    }
    return number;
  }

  /** An absolute http or https URL, as it was written. */
  url(name: string): string | undefined {
    const value = this.text(name, 5000);
    if (value !== undefined && !(URL.canParse(value) && /^https?:$/.test(new URL(value).protocol))) {
      throw this.#invalid(name, 'url_invalid', 'must be an absolute http or https URL');
    }
    return value;
  }

  /** Names of the caller's own, at most 50 of at most 40 characters, with values of at most 500. */
  metadata(name: string): Record<string, string> {
    const branch = this.#takeBranch(name);
    const metadata = new Parameters(branch, this.name(name));
    if (branch.size > 50) throw this.#invalid(name, 'parameter_invalid', 'may have at most 50 names');
    return Object.fromEntries(
      [...branch.keys()].map((key) => {
        if (key.length > 40) throw metadata.#invalid(key, 'parameter_invalid', 'may have a name of 40 characters');
        return [key, metadata.text(key, 500) ?? ''];
      }),
    );
  }

  group(name: string): Parameters | undefined {
    const branch = this.#takeBranch(name);
    return branch.size > 0 ? new Parameters(branch, this.name(name)) : undefined;
  }

  list(name: string, maxLength: number): Parameters[] {
    const branch = this.#takeBranch(name);
    if (branch.size > maxLength) throw this.#invalid(name, 'parameter_invalid', `may have ${maxLength} entries`);
    const entries = new Parameters(branch, this.name(name));
    return Array.from({ length: branch.size }, (_, index) =>
      entries.required(String(index), entries.group(String(index))),
    );
  }

  values(name: string, maxLength: number): string[] {
    const branch = this.#takeBranch(name);
    if (branch.size > maxLength) throw this.#invalid(name, 'parameter_invalid', `may have ${maxLength} entries`);
    const entries = new Parameters(branch, this.name(name));
    return [...branch.keys()].map((key) => entries.text(key, 500) ?? '');
  }

  required<T>(name: string, value: T | undefined): T {
    if (value !== undefined) return value;
    throw invalidParameter(this.name(name), 'parameter_missing', `Missing required param: ${this.name(name)}.`);
  }

  /** Throws when a parameter is left that nobody took. */
  end(): void {
    const [left] = this.#branch.keys();
    if (left === undefined) return;
    const name = this.name(left).slice(0, 200);
    throw invalidParameter(name, 'parameter_unknown', `The local checkout doesn't know the parameter ${name}.`);
  }

  #take(name: string): string | Branch | undefined {
    const value = this.#branch.get(name);
    this.#branch.delete(name);
    return value;
  }

  #takeBranch(name: string): Branch {
    const value = this.#take(name);
    if (value === undefined || value === '') return new Map();
    if (typeof value === 'string') throw this.#invalid(name, 'parameter_invalid', 'must hold named values');
    return value;
  }

  #invalid(name: string, code: string, rule: string) {
    return invalidParameter(this.name(name), code, `Invalid ${this.name(name)}: it ${rule}.`);
  }
}
