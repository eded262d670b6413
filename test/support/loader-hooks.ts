import { existsSync, readFileSync } from 'node:fs';
import type { LoadHook, ResolveHook } from 'node:module';

/**
 * Answers at once what needs no search, in the place of tsx and of tap's own hooks: a file that is imported by its path
 * and extension, and the modules of packages, which need no transformation. Most modules that a gateway loads are of
 * packages, and asking every hook about each takes longer than to load them.
 * @see https://nodejs.org/docs/latest-v20.x/api/module.html#customization-hooks
 */
export const resolve: ResolveHook = (specifier, context, next) => {
  const [, extension] = /^\.{1,2}\/.*\.(ts|m?js)$/.exec(specifier) ?? [];
  if (!extension) return next(specifier, context);
  const url = new URL(specifier, context.parentURL).href;
  return { url, format: extension === 'ts' ? 'module' : formatOf(url), shortCircuit: true };
};

export const load: LoadHook = (url, context, next) => {
  if (!url.includes('/node_modules/') || !/\.m?js$/.test(url)) return next(url, context);
  const format = formatOf(url);
  return { format, source: format === 'module' ? readFileSync(new URL(url)) : undefined, shortCircuit: true };
};

const formatOf = (url: string) => (url.endsWith('.mjs') ? 'module' : formatIn(new URL('.', url).href));

const formats = new Map<string, 'module' | 'commonjs'>();

/** The format of a folder's `.js` files, which the nearest package.json tells. */
function formatIn(folder: string): 'module' | 'commonjs' {
  const known = formats.get(folder);
  if (known) return known;
  const description = new URL('package.json', folder);
  const format = existsSync(description) ? formatBy(description) : formatIn(new URL('..', folder).href);
  formats.set(folder, format);
  return format;
}

const formatBy = (description: URL) =>
  JSON.parse(readFileSync(description, 'utf8')).type === 'module' ? 'module' : 'commonjs';
