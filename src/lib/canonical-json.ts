import canonicalizer from 'canonicalize';

// The package's types declare a default export, but the module itself is the function.
const serialize = canonicalizer as unknown as (value: unknown) => string | undefined;

/** Canonical JSON (RFC 8785). */
export function canonicalize(value: object): string {
  return serialize(value) as string;
}
