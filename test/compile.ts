import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { build, type Plugin } from 'esbuild';

/** Leaves each module a file of its own, which imports the compiled ones of the others. */
const APART: Plugin = {
  name: 'apart',
  setup: ({ onResolve }) =>
    onResolve({ filter: /./ }, ({ path, kind }) =>
      kind === 'entry-point' ? undefined : { path: path.replace(/^(\..*)\.ts$/, '$1.js'), external: true },
    ),
};

/** Changes the text of a file of `src/`, whose path within it is given. */
export type Edit = (path: string, text: string) => string;

const edited = (source: string, edit: Edit): Plugin => ({
  name: 'edited',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\.ts$/ }, async ({ path }) => ({
      ...{ contents: edit(relative(source, path), await readFile(path, 'utf8')), loader: 'ts' },
    })),
});

/**
 * Compiles `src/` by what tsx compiles it with, so that the programs which tests start need not do it at each start: that
 * takes two thirds of it. Tells the folder, a new one beside `src/`, as deep, and how to remove it.
 * @param edit for a service that differs from the project's
 */
export async function compileService(
  project: string,
  edit?: Edit,
): Promise<{ folder: string; remove(): Promise<void> }> {
  const source = join(project, 'src');
  const folder = await mkdtemp(join(project, '.compiled-'));
  const remove = () => rm(folder, { recursive: true, force: true });
  try {
    const files = (await readdir(source, { recursive: true })).filter((path) => path.endsWith('.ts'));
    await build({
      ...{ entryPoints: files.map((path) => join(source, path)), outbase: source, outdir: folder },
      ...{ bundle: true, plugins: [APART, ...(edit ? [edited(source, edit)] : [])] },
      ...{ format: 'esm', platform: 'node', target: 'node20', logLevel: 'error' },
    });
    await cp(source, folder, { recursive: true, filter: (path) => !path.endsWith('.ts') });
    return { folder, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}
