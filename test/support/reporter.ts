/**
 * What a run of tap prints: a line for each file, every failure in full at the end, and as the last line
 * `N passed, N failed`. It counts tests, not assertions: a test that has subtests counts only when it fails by itself.
 */
import { Transform } from 'node:stream';
import { inspect } from 'node:util';
import { type Base, Spawn, t } from 'tap';
import { SLOWEST } from './slowest.ts';

type Parser = Base['parser'];
type Point = Parameters<Parser['emitAssert']>[0];

/** What is known of a test when it has ended, beside its own result. */
interface Inside {
  readonly failed: Point[];
  hasSubtests: boolean;
}

/** What became of one test file. */
class FileReport {
  passed = 0;
  readonly failures: { readonly name: string; readonly diagnostics: string }[] = [];
  readonly skips: { readonly name: string; readonly reason: string }[] = [];
  readonly notes: string[] = [];
  /** What the process printed, at most its last 100 kB. */
  output = '';

  constructor(file: Spawn) {
    file.on('preprocess', (options) => {
      options.stdio = [0, 'pipe', 'pipe', 'ipc'];
    });
    file.on('process', ({ stderr }) => stderr?.on('data', (chunk: Buffer) => this.#print(String(chunk))));
    this.#follow(file.parser, []);
  }

  #fail(name: string, ...diagnostics: unknown[]): void {
    const shown = diagnostics.map((what) => inspect(what, { depth: 8, maxStringLength: 5000, breakLength: 120 }));
    this.failures.push({ name, diagnostics: shown.join('\n') });
  }

  /** Fails what the tests themselves could not tell of, and prints a summary. */
  end(file: Spawn): void {
    const { exitCode, signal } = file.options;
    if (this.failures.length === 0) {
      if (this.passed + this.skips.length === 0) this.#fail('(no tests)', { exitCode, signal });
      else if (!file.passing()) this.#fail('(crash)', { exitCode, signal });
    }

    const counts = [`${this.passed} passed`];
    if (this.failures.length > 0) counts.push(`${this.failures.length} failed`);
    if (this.skips.length > 0) counts.push(`${this.skips.length} skipped`);
    const lines = [
      `${this.failures.length > 0 ? 'FAIL' : 'ok  '} ${file.name}: ${counts.join(', ')} (${Math.round(file.time)} ms)`,
      ...this.failures.map(({ name }) => `     failed: ${name}`),
      ...this.skips.map(({ name, reason }) => `     skipped: ${name} (${reason})`),
      ...this.notes.map((note) => `     ${note}`),
    ];
    console.log(lines.join('\n'));
  }

  #print(text: string): void {
    this.output = (this.output + text).slice(-100_000);
  }

  #follow(parser: Parser, path: readonly string[]): Inside {
    const test: Inside = { failed: [], hasSubtests: false };
    let subtest: Inside | undefined;
    parser.on('child', (child: Parser) => {
      test.hasSubtests = true;
      subtest = this.#follow(child, [...path, child.name]);
    });
    parser.on('assert', (point: Point) => {
      const name = [...path, point.name].join(' > ');
      const reason = [point.skip, point.todo].find(Boolean);
      if (reason) {
        test.hasSubtests = true;
        this.skips.push({ name, reason: reason === true ? 'no reason given' : reason });
      } else if (subtest) this.#count(name, point, subtest);
      else if (!point.ok && path.length === 0) this.#fail(name, point.diag);
      else if (!point.ok) test.failed.push(point);
      subtest = undefined;
    });
    parser.on('comment', (comment: string) => {
      if (!/^# (Subtest|time=)/.test(comment)) this.notes.push(comment.slice(2).trimEnd());
    });
    if (path.length === 0) parser.on('extra', (text: string) => this.#print(text));
    return test;
  }

  #count(name: string, point: Point, { failed, hasSubtests }: Inside): void {
    if (point.ok && !hasSubtests) this.passed += 1;
    const own = failed.map(({ name: message, diag }) => ({ message, ...diag }));
    if (own.length > 0) this.#fail(name, ...own);
    else if (!point.ok && !hasSubtests) this.#fail(name, point.diag);
  }
}

/** The slowest files begin first, so that in the end none is left to run alone. */
function placeOf(file: string): number {
  const place = SLOWEST.indexOf(file.replace(/^test\//, '').replace(/(\.proof)?\.test\.ts$/, ''));
  return place === -1 ? SLOWEST.length : place;
}

/** tap pipes its output into this and this to standard output; the results come from tap's own events, which tell more. */
export default class Reporter extends Transform {
  readonly #files = new Map<Spawn, FileReport>();

  constructor() {
    super({ transform: (_chunk, _encoding, done) => done() });
    // Until all have ended: a run that stops before has failed.
    process.exitCode = 1;
    t.on('subtestAdd', (file) => {
      if (file instanceof Spawn) this.#files.set(file, new FileReport(file));
      // Those that have not begun, in the order in which they will.
      t.subtests.sort((one, other) => placeOf(one.name) - placeOf(other.name));
    });
    t.on('subtestEnd', (file) => {
      if (file instanceof Spawn) this.#files.get(file)?.end(file);
    });
  }

  /** Prints the failures in full and the totals. */
  override _flush(done: () => void): void {
    const files = [...this.#files];
    for (const [{ name }, { failures, output }] of files) {
      for (const failure of failures) console.log(`\n--- ${name}: ${failure.name}\n${failure.diagnostics}`);
      if (failures.length > 0 && output.trim()) console.log(`\n--- ${name} printed:\n${output.trim()}`);
    }
    const sum = (count: (file: FileReport) => number) => files.reduce((total, [, file]) => total + count(file), 0);
    const passed = sum((file) => file.passed);
    const failed = sum((file) => file.failures.length);
    const skipped = sum((file) => file.skips.length);
    console.log(`\n${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
    process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
    done();
  }
}
