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
 * Reads the TAP of a run, of which each file is a subtest, and calls `onFile` as each file ends.
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
    const file = new FileReader(parser);
    run.once('assert', (point: Result) => add(file.result(point)));
  });
  for await (const chunk of tap) run.write(chunk);
  run.end();
  for (const file of planned.filter((name) => !results.has(name))) {
    add({
      file,
      ms: 0,
      passed: 0,
      failures: [{ title: 'the file did not run', diagnostics: '' }],
      skipped: [],
      output: [],
    });
  }
  return [...results.values()];
}

interface Level {
  /** Failed assertions of its own. */
  readonly failed: Result[];
  hasSubtests: boolean;
}

class FileReader {
  #passed = 0;
  readonly #failures: { title: string; diagnostics: string }[] = [];
  readonly #skipped: { title: string; reason: string }[] = [];
  readonly #output: string[] = [];

  constructor(parser: Parser) {
    this.#read(parser, []);
  }

  result(point: Result): FileResult {
    if (this.#failures.length === 0 && (!point.ok || this.#passed + this.#skipped.length === 0)) {
      this.#fail(point.ok ? 'the file has no tests' : 'the file failed', [point.diag]);
    }
    return {
      file: point.name,
      ms: point.time ?? 0,
      passed: this.#passed,
      failures: this.#failures,
      skipped: this.#skipped,
      output: this.#output,
    };
  }

  #fail(title: string, diagnostics: unknown[]): void {
    const shown = diagnostics.map((each) => inspect(each, { depth: 8, maxStringLength: 5000, breakLength: 120 }));
    this.#failures.push({ title, diagnostics: shown.join('\n') });
  }

  /** Follows one level of tests. The level that it returns is complete once the parser has ended. */
  #read(parser: Parser, path: readonly string[]): Level {
    const level: Level = { failed: [], hasSubtests: false };
    let subtest: Level | undefined;
    parser.on('child', (child: Parser) => {
      level.hasSubtests = true;
      subtest = this.#read(child, [...path, child.name]);
    });
    parser.on('assert', (point: Result) => {
      const title = [...path, point.name].join(' > ');
      const reason = point.skip || point.todo;
      if (reason) this.#skipped.push({ title, reason: String(reason) });
      else if (subtest) {
        const { failed, hasSubtests } = subtest;
        if (point.ok && !hasSubtests) this.#passed += 1;
        if (failed.length > 0)
          this.#fail(
            title,
            failed.map(({ name, diag }) => ({ assertion: name, ...diag })),
          );
        else if (!point.ok && !hasSubtests) this.#fail(title, [point.diag]);
      } else if (!point.ok && path.length === 0) this.#fail(title, [point.diag]);
      else if (!point.ok) level.failed.push(point);
      if (reason) level.hasSubtests = true;
      subtest = undefined;
    });
    for (const kind of ['comment', 'extra'] as const)
      parser.on(kind, (text: string) => this.#output.push(text.trimEnd()));
    return level;
  }
}
