import { invalidParameter } from './api-error.ts';

/** Nested parameters. A list is a branch whose names are 0, 1, 2, … */
export type Branch = Map<string, string | Branch>;

const NAME = /^([^[\]]+)((?:\[[^[\]]*\])*)$/;
const MAX_PARAMETERS = 1000;
const MAX_DEPTH = 8;

/**
 * Reads Stripe's form encoding, in which `a[b][0]=c` nests and `a[]=c` appends. Throws ApiError for a name that can't be
 * read, or that is used both for a value and for a branch.
 */
export function parseForm(text: string): Branch {
  const root: Branch = new Map();
  let count = 0;
  for (const [name, value] of new URLSearchParams(text)) {
    count += 1;
    const match = NAME.exec(name);
    if (!match || count > MAX_PARAMETERS) throw invalidName(name);
    const path = [match[1] ?? '', ...[...(match[2] ?? '').matchAll(/\[([^[\]]*)\]/g)].map((step) => step[1] ?? '')];
    if (path.length > MAX_DEPTH) throw invalidName(name);
    put(root, path, value, name);
  }
  return root;
}

function put(root: Branch, path: string[], value: string, name: string): void {
  let branch = root;
  for (const [depth, step] of path.entries()) {
    const key = step === '' ? String(branch.size) : step;
    const present = branch.get(key);
    if (depth === path.length - 1) {
      if (present !== undefined) throw invalidName(name);
      branch.set(key, value);
    } else {
      if (typeof present === 'string') throw invalidName(name);
      const next: Branch = present ?? new Map();
      branch.set(key, next);
      branch = next;
    }
  }
}

const invalidName = (name: string) =>
  invalidParameter(name.slice(0, 100), 'parameter_unknown', 'A parameter is malformed, repeated, or one too many.');
