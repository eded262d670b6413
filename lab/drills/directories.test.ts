import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { type Test, test } from 'tap';
import { freePort } from '../../src/sandbox/free-port.ts';
import { startChild } from '../../test/support/child.ts';
import { sandboxFolder } from '../../test/support/sandbox-folder.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';

const packages = createRequire(import.meta.url);
const MPPX = join(dirname(packages.resolve('mppx')), 'bin.js');
const AGENTCASH = join(dirname(packages.resolve('@agentcash/discovery')), '../bin/discovery.js');

/** What a directory's tool finds at an address: where, how grave, and what. */
type Finding = readonly [where: string, severity: string, what: string];

/**
 * What `mppx validate` finds, and why it stays: x402 endpoints speak x402 and not the Payment scheme, which mppx says of
 * each and skips.
 */
const BY_MPPX: readonly Finding[] = ['POST /x402/tts', 'GET /x402/tts', 'POST /x402/deposit'].map((where) => [
  where,
  'skip',
  'Not an MPP endpoint',
]);
/** Likewise @agentcash/discovery: the public surface has no icon. */
const BY_AGENTCASH: readonly Finding[] = [['', 'warn', 'FAVICON_MISSING']];

/**
 * Runs a tool with nothing of this machine's settings; tells what it has printed, also where it ends with an error. It
 * prints to a file: mppx ends without waiting for a pipe to take the rest.
 */
async function run(t: Test, program: string, ...args: string[]): Promise<string> {
  const folder = await temporaryFolder(t);
  const file = await open(join(folder, 'printed'), 'w');
  const env = { PATH: process.env.PATH, HOME: folder, NO_UPDATE_NOTIFIER: '1' };
  const tool = spawn(process.execPath, [program, ...args], { env, stdio: ['ignore', file.fd, 'ignore'] });
  await once(tool, 'exit');
  await file.close();
  return readFile(join(folder, 'printed'), 'utf8');
}

interface Check {
  readonly label: string;
  readonly severity: string;
}

interface Endpoint {
  readonly method: string;
  readonly path: string;
  readonly challenge: readonly Check[];
  readonly errorHandling: readonly Check[];
  readonly payment: readonly Check[];
}

/** What `mppx validate` finds. */
async function mppx(t: Test, url: string): Promise<{ found: Finding[]; passed: number }> {
  const report = JSON.parse(await run(t, MPPX, 'validate', url, '--output-json'));
  const found = (where: string, checks: readonly Check[]) =>
    checks
      .filter(({ severity }) => severity !== 'pass')
      .map(({ label, severity }): Finding => [where, severity, label]);
  const { discovery, endpoints, summary } = report;
  const ofEndpoints = endpoints.flatMap(({ method, path, challenge, errorHandling, payment }: Endpoint) =>
    found(`${method} ${path}`, [...challenge, ...errorHandling, ...payment]),
  );
  return { found: [...found('', discovery.checks), ...ofEndpoints], passed: summary.passed };
}

interface Warning {
  readonly code: string;
  readonly severity: string;
  readonly path?: string;
}

interface Resource {
  readonly method: string;
  readonly path: string;
  readonly authHint: string;
  readonly priceHint: string;
}

/** What `discovery` of @agentcash/discovery finds at an origin, and the operations that it lists as paid. */
async function agentcash(t: Test, url: string): Promise<{ found: Finding[]; paid: string[] }> {
  const { warnings, resources } = JSON.parse(await run(t, AGENTCASH, 'discover', url, '--json'));
  return {
    found: warnings.map(({ code, severity, path = '' }: Warning): Finding => [path, severity, code]),
    paid: resources
      .filter(({ authHint }: Resource) => authHint.endsWith('paid'))
      .map(({ method, path, priceHint }: Resource) => `${method} ${path}: ${priceHint}`),
  };
}

const sorted = (findings: readonly Finding[]) => findings.map((finding) => finding.join(' | ')).sort();

// By default a GET without a text is 400 (R59), not a challenge, and mppx reports that too.
test('directories report only what the published interface causes', async (t) => {
  const port = await freePort();
  const sandbox = startChild(t, 'src/sandbox/main.ts', {
    ...{ DATA_DIR: await sandboxFolder(t), PORT: String(port), X402_PROBE_ANSWER: '402' },
  });
  await sandbox.printed(/Ctrl-C stops the sandbox/);
  t.teardown(() => sandbox.stop());
  const url = `http://127.0.0.1:${port}`;
  const byMppx = await mppx(t, url);
  t.strictSame(sorted(byMppx.found), sorted(BY_MPPX));
  t.equal(byMppx.passed, 20);
  const byAgentcash = await agentcash(t, url);
  t.strictSame(byAgentcash.found, BY_AGENTCASH);
  t.strictSame(byAgentcash.paid.sort(), [
    'GET /x402/tts: 0.000018-0.054000 USD',
    'POST /tts: 0.000018-0.147456 USD',
    'POST /x402/deposit: 0.100000-100.000000 USD',
    'POST /x402/tts: 0.000018-0.147456 USD',
  ]);
});
