import { ContractError } from './contract-error.ts';

// biome-ignore lint/suspicious/noExplicitAny: the shape of a parsed document is not known before it is checked
export type Raw = Record<string, any>;

/** Replaces every local `$ref` by what it names; `names` learns the names of component schemas. */
export function dereference(root: Raw, names: WeakMap<object, string>): unknown {
  const resolved = new Map<string, unknown>();
  const open = new Set<string>();

  function target(ref: string): unknown {
    if (resolved.has(ref)) return resolved.get(ref);
    if (open.has(ref)) throw new ContractError([`${ref} contains itself; recursive schemas are not supported`]);
    let node: unknown = root;
    for (const part of ref.replace(/^#\//, '').split('/')) {
      node = (node as Raw | undefined)?.[part.replaceAll('~1', '/').replaceAll('~0', '~')];
    }
    if (typeof node !== 'object' || node === null) throw new ContractError([`$ref ${ref} names nothing`]);
    open.add(ref);
    const value = visit(node);
    open.delete(ref);
    resolved.set(ref, value);
    const name = /^#\/components\/schemas\/([A-Za-z_]\w*)$/.exec(ref)?.[1];
    if (name !== undefined && !names.has(value as object)) names.set(value as object, name);
    return value;
  }

  function visit(node: unknown): unknown {
    if (typeof node !== 'object' || node === null) return node;
    if (Array.isArray(node)) return node.map(visit);
    if ('$ref' in node && typeof node.$ref === 'string') return target(node.$ref);
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, visit(value)]));
  }

  return visit(root);
}
