import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Report } from './reporter.ts';

/** What became of one test file. */
export interface FileResult {
  readonly path: string;
  readonly milliseconds: number;
  readonly passed: number;
  readonly failures: { readonly name: string; readonly diagnostics: string }[];
  readonly skips: { readonly name: string; readonly reason: string }[];
  readonly notes: string[];
  /** What the process printed, at most its last 100 kB. */
  readonly output: string;
}

const REPORTER = fileURLToPath(new URL('reporter.ts', import.meta.url));
const OUTPUT_LIMIT = 100_000;

/**
 * Runs one test file in a process, and a process group, of its own. Whatever keeps the file from telling its results is
 * a failure too: a crash, a file that doesn't load or has no tests, and `silenceMs` without any test starting or ending.
 * Aborting the signal kills the group.
 */
export async function runTestFile(
  path: string,
  options: { environment: NodeJS.ProcessEnv; silenceMs: number; signal: AbortSignal },
): Promise<FileResult> {
  const startedAt = performance.now();
  const result = { passed: 0, failures: [], skips: [], notes: [] } as Pick<
    FileResult,
    'failures' | 'skips' | 'notes'
  > & { passed: number };
  const fail = (name: string, diagnostics: string) => result.failures.push({ name, diagnostics });

  const child = spawn(
    process.execPath,
    ['--import', 'tsx', `--test-reporter=${REPORTER}`, '--test-reporter-destination=stdout', path],
    { env: options.environment, stdio: ['ignore', 'pipe', 'pipe', 'ipc'], detached: true },
  );
  const killGroup = () => {
    try {
      if (child.pid) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended by itself.
    }
  };
  options.signal.addEventListener('abort', killGroup);

  let output = '';
  const keep = (chunk: Buffer) => {
    output = (output + chunk).slice(-OUTPUT_LIMIT);
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);

  let lastBegun = 'before its first test';
  let complete = false;
  let timedOut = false;
  const watchdog = setTimeout(() => {
    timedOut = true;
    killGroup();
  }, options.silenceMs);
  child.on('message', (report: Report) => {
    watchdog.refresh();
    if (report.kind === 'running') lastBegun = `in or after: ${report.name}`;
    else if (report.kind === 'passed') result.passed += 1;
    else if (report.kind === 'failed') fail(report.name, report.diagnostics);
    else if (report.kind === 'skipped') result.skips.push({ name: report.name, reason: report.reason });
    else if (report.kind === 'note') result.notes.push(report.text);
    else complete = true;
  });

  const [code, signalName] = await new Promise<[number | null, string | null]>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signalName) => resolve([code, signalName]));
  });
  clearTimeout(watchdog);
  options.signal.removeEventListener('abort', killGroup);

  const tests = result.passed + result.failures.length + result.skips.length;
  if (timedOut) fail('(timeout)', `Nothing happened for ${options.silenceMs / 1000} s, ${lastBegun}`);
  else if (options.signal.aborted) fail('(interrupted)', `The run was interrupted, ${lastBegun}`);
  else if (code !== 0 && (!complete || result.failures.length === 0)) {
    fail('(crash)', `The process ended with ${signalName ?? `exit code ${code}`}, ${lastBegun}`);
  } else if (!complete && tests > 0) fail('(crash)', `The process ended early, ${lastBegun}`);
  else if (tests === 0) fail('(no tests)', 'The file has no tests, or its process ended early.');

  return { ...result, path, output: output.trim(), milliseconds: Math.round(performance.now() - startedAt) };
}
