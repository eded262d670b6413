import { createHash, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import type { DeclaredResponses } from '../../codegen/response-validators.ts';
import { projectFile } from './project.ts';

const PROJECT = projectFile('');
const CACHE = new URL('node_modules/.cache/speechgate/', PROJECT);

/**
 * The validators of every declared response, compiled from openapi.yaml. That takes over a second, so that the module is
 * kept until the contract or its compiler changes, and each test file only loads it.
 */
export async function declaredResponses(): Promise<DeclaredResponses> {
  const contract = await readFile(new URL('openapi.yaml', PROJECT), 'utf8');
  const module = new URL(`responses-${await keyOf(contract)}.js`, CACHE);
  if (!existsSync(module)) {
    const { readContract } = await import('../../codegen/contract.ts');
    const { generateResponseValidators } = await import('../../codegen/response-validators.ts');
    await mkdir(CACHE, { recursive: true });
    // Another test file may be doing the same.
    const written = new URL(`${randomUUID()}.js`, CACHE);
    await writeFile(written, generateResponseValidators(readContract(contract)));
    await rename(written, module);
  }
  return import(module.href);
}

async function keyOf(contract: string): Promise<string> {
  const hash = createHash('sha256').update(contract);
  const sources = (await readdir(new URL('codegen/', PROJECT))).sort().map((name) => `codegen/${name}`);
  for (const source of [...sources, 'package-lock.json']) hash.update(await readFile(new URL(source, PROJECT)));
  return hash.digest('hex').slice(0, 16);
}
