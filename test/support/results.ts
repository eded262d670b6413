import type { Readable } from 'node:stream';
import { inspect } from 'node:util';
import { Parser, type Result } from 'tap-parser';

/** The result of one test file. Tests are counted, not assertions; a test with subtests counts only if it fails by itself. */
export interface FileResult {
  readonly file: string;
  readonly ms: number;
  readonly passed: number;
  readonly failures: readonly { readonly title: string; readonly diagnostics: string }[];
  readonly skipped: readonly { readonly title: string; readonly reason: string }[];
  /** Comments and other output of the file. */
  readonly output: readonly string[];
}

/**
 * Reads the TAP of a run, of which each process is a subtest, named after its files. There, a test with the name of a file
 * precedes that file's tests. Calls `onFile` as each process ends.
 * A file without tests is a failure, and so is a planned file that is missing in the TAP.
 * @see https://testanything.org/tap-version-14-specification.html
 */
export async function readResults(
  planned: readonly string[],
  tap: Readable,
  onFile: (result: FileResult) => void,
): Promise<FileResult[]> {
  const results = new Map<string, FileResult>();
  const add = (result: FileResult) => {
    results.set(result.file, result);
    onFile(result);
  };
  const run = new Parser();
  run.on('child', (parser: Parser) => {
    const process = new ProcessReader(parser, (name) => planned.includes(name));
    run.once('assert', (point: Result) => process.results(point).forEach(add));
  });
  for await (const chunk of tap) run.write(chunk);
  run.end();
  for (const name of planned.filter((name) => !results.has(name))) {
    const missing = new FileReader(name);
    missing.fail('the file did not run', []);
    add(missing.result());
  }
  return [...results.values()];
}

/** Reads the tests of one process, file by file. */
class ProcessReader {
  readonly #files: FileReader[] = [];

  constructor(parser: Parser, isFile: (name: string) => boolean) {
    let subtest: Level | undefined;
    parser.on('child', (child: Parser) => {
      if (isFile(child.name)) this.#files.push(new FileReader(child.name));
      subtest = this.#files.at(-1)?.read(child, isFile(child.name) ? [] : [child.name]);
    });
    parser.on('assert', (point: Result) => {
      if (!isFile(point.name) || !point.ok) this.#files.at(-1)?.add(point, subtest, []);
      subtest = undefined;
    });
    for (const kind of ['comment', 'extra'] as const) {
      parser.on(kind, (text: string) => this.#files.at(-1)?.print(text));
    }
  }

  /** @param end of the process. If it failed and none of its files did, its last file has failed. */
  results({ ok, diag }: Result): FileResult[] {
    const hasFailed = this.#files.some((file) => file.hasFailed);
    if (!ok && !hasFailed) this.#files.at(-1)?.fail('the file failed', [diag]);
    return this.#files.map((file) => file.result());
  }
}

interface Level {
  /** Failed assertions of its own. */
  readonly failed: Result[];
  hasSubtests: boolean;
}

class FileReader {
  readonly #file: string;
  #ms = 0;
  #passed = 0;
  readonly #failures: { title: string; diagnostics: string }[] = [];
  readonly #skipped: { title: string; reason: string }[] = [];
  readonly #output: string[] = [];

  constructor(file: string) {
    this.#file = file;
  }

  get hasFailed(): boolean {
    return this.#failures.length > 0;
  }

  result(): FileResult {
    if (!this.hasFailed && this.#passed + this.#skipped.length === 0) this.fail('the file has no tests', []);
    return {
      file: this.#file,
      ms: this.#ms,
      passed: this.#passed,
      failures: this.#failures,
      skipped: this.#skipped,
      output: this.#output,
    };
  }

  print(text: string): void {
    this.#output.push(text.trimEnd());
  }

  fail(title: string, diagnostics: unknown[]): void {
    const shown = diagnostics.map((each) => inspect(each, { depth: 8, maxStringLength: 5000, breakLength: 120 }));
    this.#failures.push({ title, diagnostics: shown.join('\n') });
  }

  /** Follows one level of tests. The level that it returns is complete once the parser has ended. */
  read(parser: Parser, path: readonly string[]): Level {
    const level: Level = { failed: [], hasSubtests: false };
    let subtest: Level | undefined;
    parser.on('child', (child: Parser) => {
      level.hasSubtests = true;
      subtest = this.read(child, [...path, child.name]);
    });
    parser.on('assert', (point: Result) => {
      this.add(point, subtest, path, level);
      subtest = undefined;
    });
    for (const kind of ['comment', 'extra'] as const) parser.on(kind, (text: string) => this.print(text));
    return level;
  }

  /** @param subtest what it was, if it was one @param level where it is, if not at the top */
  add(point: Result, subtest: Level | undefined, path: readonly string[], level?: Level): void {
    const title = [...path, point.name].join(' > ');
    const reason = point.skip || point.todo;
    if (!level) this.#ms += point.time ?? 0;
    if (reason) {
      this.#skipped.push({ title, reason: String(reason) });
      if (level) level.hasSubtests = true;
    } else if (subtest) {
      const { failed, hasSubtests } = subtest;
      if (point.ok && !hasSubtests) this.#passed += 1;
      if (failed.length > 0)
        this.fail(
          title,
          failed.map(({ name, diag }) => ({ assertion: name, ...diag })),
        );
      else if (!point.ok && !hasSubtests) this.fail(title, [point.diag]);
    } else if (!point.ok && !level) this.fail(title, [point.diag]);
    else if (!point.ok) level?.failed.push(point);
  }
}
