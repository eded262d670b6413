export type Role = 'all' | 'web' | 'worker';

/** Reads `--role=web|worker`; undefined for other arguments. */
export function readRole(args: readonly string[]): Role | undefined {
  const [argument, ...rest] = args;
  if (argument === undefined) return 'all';
  const role = /^--role=(web|worker)$/.exec(argument)?.[1];
  return rest.length === 0 ? (role as Role | undefined) : undefined;
}
