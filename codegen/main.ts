import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { clientScript } from './client-script.ts';
import { ContractError } from './contract-error.ts';
import { generate, HEADING } from './generate.ts';

/**
 * `npm run codegen` writes what the contract says and removes what it once wrote and no longer says, and bundles what a page
 * needs of the client. With `--check` it only prints which files differ, and exits 1 if any does.
 */
const { values } = parseArgs({
  options: {
    check: { type: 'boolean', default: false },
    contract: { type: 'string', default: 'openapi.yaml' },
    out: { type: 'string', default: 'src/contract' },
  },
});

const CLIENT_SCRIPT = 'src/http/pages/client-script.ts';

/** The files of a directory, by name. */
async function present(directory: string): Promise<Map<string, string>> {
  const names = await readdir(directory).catch(() => []);
  const files = new Map<string, string>();
  for (const name of names.sort()) files.set(name, await readFile(join(directory, name), 'utf8'));
  return files;
}

/** Prints how the directory differs from what the contract says, and answers whether it does. */
function differs(wanted: Map<string, string>, found: Map<string, string>): boolean {
  const lines = [
    ...[...wanted.keys()].filter((name) => !found.has(name)).map((name) => `missing: ${name}`),
    ...[...wanted]
      .filter(([name, text]) => found.has(name) && found.get(name) !== text)
      .map(([name]) => `differs: ${name}`),
    ...[...found.keys()].filter((name) => !wanted.has(name)).map((name) => `extra:   ${name}`),
  ];
  for (const line of lines) console.error(line);
  return lines.length > 0;
}

try {
  const wanted = await generate(await readFile(values.contract, 'utf8'));
  const found = await present(values.out);
  const script = await clientScript();
  if (values.check) {
    if ((await readFile(CLIENT_SCRIPT, 'utf8').catch(() => '')) !== script) {
      console.error(`${CLIENT_SCRIPT} is not what src/callers/client says; run: npm run codegen`);
      process.exitCode = 1;
    }
    if (differs(wanted, found)) {
      console.error(`${values.out} is not what ${values.contract} says; run: npm run codegen`);
      process.exitCode = 1;
    }
  } else {
    await writeFile(CLIENT_SCRIPT, script);
    await mkdir(values.out, { recursive: true });
    for (const [name, text] of wanted) await writeFile(join(values.out, name), text);
    const stale = [...found].filter(([name, text]) => !wanted.has(name) && text.startsWith(HEADING));
    for (const [name] of stale) await rm(join(values.out, name));
  }
} catch (error) {
  if (!(error instanceof ContractError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
