import { execFile } from 'node:child_process';
import { appendFile, mkdir, readFile, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type Test, test } from 'tap';
import { projectFile } from '../support/project.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const script = fileURLToPath(projectFile('codegen/ensure-build.js'));

/** A project of one source file, and what can be done with it. */
async function project(t: Test) {
  const root = await temporaryFolder(t);
  await mkdir(join(root, 'src'));
  await writeFile(join(root, 'src/speechgate.ts'), 'export const greeting: string = "hello";\n');
  await writeFile(join(root, 'package.json'), '{ "type": "module" }');
  await writeFile(join(root, 'tsconfig.json'), '{}');
  await writeFile(
    join(root, 'tsconfig.build.json'),
    JSON.stringify({
      compilerOptions: {
        rootDir: 'src',
        outDir: 'dist',
        target: 'ES2023',
        module: 'NodeNext',
        incremental: true,
        tsBuildInfoFile: 'dist/.tsbuildinfo',
        noCheck: true,
        lib: ['ES5'],
        types: [],
      },
      include: ['src'],
    }),
  );
  const compiler = join(root, 'node_modules');
  await symlink(fileURLToPath(projectFile('node_modules')), compiler);
  const output = join(root, 'dist/speechgate.js');
  return {
    root,
    output,
    // Without the loader that tap gives to every child.
    ensureBuild: () => promisify(execFile)('env', ['--unset=NODE_OPTIONS', process.execPath, script], { cwd: root }),
    removeCompiler: () => rm(compiler),
    /** Marks the output: a build replaces it. */
    mark: () => appendFile(output, '// kept\n'),
    isRebuilt: async () => !(await readFile(output, 'utf8')).includes('// kept'),
    touch: (name: string) => utimes(join(root, name), new Date(), new Date()),
  };
}

test('sources are compiled when there is no output or an older one, and not again', async (t) => {
  const { root, output, ensureBuild, mark, isRebuilt, touch } = await project(t);
  await ensureBuild();
  t.match(await readFile(output, 'utf8'), /export const greeting = "hello"/);
  t.equal((await stat(output)).mode & 0o111, 0o111, 'npx links it as a program');
  await mark();
  await ensureBuild();
  t.equal(await isRebuilt(), false);

  await writeFile(join(root, 'src/speechgate.ts'), 'export const greeting: string = "good day";\n');
  await ensureBuild();
  t.match(await readFile(output, 'utf8'), /good day/);
  await writeFile(join(root, 'src/added.ts'), 'export const added: number = 1;\n');
  await ensureBuild();
  t.match(await readFile(join(root, 'dist/added.js'), 'utf8'), /added = 1/);
  // Its text is the same, so the compiler writes nothing; the next start must not compile again.
  await touch('src/added.ts');
  await ensureBuild();
  await mark();
  await ensureBuild();
  t.equal(await isRebuilt(), false);
});

test('without a compiler the output is kept, and a missing one is an error', async (t) => {
  const { root, ensureBuild, mark, isRebuilt, removeCompiler, touch } = await project(t);
  await ensureBuild();
  await mark();
  await removeCompiler();
  await touch('src/speechgate.ts');
  await ensureBuild();
  t.equal(await isRebuilt(), false);
  await rm(join(root, 'dist'), { recursive: true });
  await t.rejects(ensureBuild(), {
    code: 1,
    stderr: /^dist\/ is missing and TypeScript is not installed\. Run npm ci/,
  });
});
