import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { x402Client } from '@x402/fetch';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { privateKeyToAccount } from 'viem/accounts';
import type { Database } from '../../src/db/database.ts';
import { readConfig } from '../../src/settings/config.ts';
import { type Child, startCommand } from '../support/child.ts';
import { decodeHeader } from '../support/x402.ts';

export const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

export const shell = (t: Test, cwd: string, command: string, env: Record<string, string> = {}): Child =>
  startCommand(t, ['sh', '-euc', command], { cwd, env, isGroup: true });

export async function run(t: Test, cwd: string, command: string, env: Record<string, string> = {}): Promise<string> {
  const child = shell(t, cwd, command, env);
  assert.equal(await child.ended(), 0, `${command}\n${child.output()}`);
  return child.output().replaceAll('\r\n', '\n');
}

export const printedCommands = (output: string): string[] =>
  output
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => /^ {2}(curl|npm run) /.test(line))
    .map((line) => line.trim());

/** The embedded database has this role, another one may not. */
export async function ensureRole(db: Database, name: string): Promise<void> {
  const { rows } = await sql`select from pg_roles where rolname = ${name}`.execute(db);
  if (rows.length === 0) await sql`create role ${sql.ref(name)}`.execute(db);
}

export async function areSettings(code: string): Promise<void> {
  const operations = await readFile(join(PROJECT, 'docs/operations.md'), 'utf8');
  for (const line of code.split('\n')) {
    const [name] = line.split('=', 1);
    assert.ok(operations.includes(`\`${name}\``), `docs/operations.md does not name ${name}`);
    const { misspelt } = readConfig({ [name as string]: '…' });
    assert.deepEqual(misspelt, []);
  }
}

export const fingerprintsIn = (output: string): string[] =>
  [...output.matchAll(/^ +fingerprint +(\S+)$/gm)].map(([, fingerprint]) => fingerprint as string);

/** A payment for Hello world without an identifier. */
export async function unnamedPayment(baseUrl: string, key: string): Promise<object> {
  const asked = await fetch(`${baseUrl}/x402/tts?text=Hello+world`);
  const wallet = privateKeyToAccount(key as `0x${string}`);
  const client = new x402Client().register('eip155:8453', new ExactEvmScheme(wallet));
  return client.createPaymentPayload(decodeHeader(asked.headers.get('payment-required')));
}
