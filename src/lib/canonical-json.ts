import canonicalizer from 'canonicalize';

// The package's types describe a default export inside the module that is the function itself.
const serialize = canonicalizer as unknown as (value: unknown) => string | undefined;

/** Canonical JSON (RFC 8785) of a JSON value. */
export function canonicalize(value: object): string {
  return serialize(value) as string;
}
