import { AssertionError } from 'node:assert';
import type { TestEvent } from 'node:test/reporters';
import { inspect } from 'node:util';

/** What the process of a test file tells the runner, over its IPC channel. */
export type Report =
  | { readonly kind: 'running'; readonly name: string }
  | { readonly kind: 'passed'; readonly name: string }
  | { readonly kind: 'failed'; readonly name: string; readonly diagnostics: string }
  | { readonly kind: 'skipped'; readonly name: string; readonly reason: string }
  | { readonly kind: 'note'; readonly text: string }
  | { readonly kind: 'complete' };

/** The totals that node:test appends for its own reporters. */
const OWN_TOTALS = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

/**
 * Reporter for `node --test-reporter` that counts test cases: a suite, or a test that has subtests, counts only when it
 * is skipped or fails by itself. Passes and failures arrive in the order of the file, children before their parent.
 */
export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
  const started: string[] = [];
  const running: string[] = [];
  const hasChildren: boolean[] = [];
  const tell = (message: Report) => process.send?.(message);

  for await (const event of events) {
    if (event.type === 'test:dequeue') {
      running.splice(event.data.nesting, Number.POSITIVE_INFINITY, event.data.name);
      tell({ kind: 'running', name: running.join(' > ') });
    } else if (event.type === 'test:start') {
      started.splice(event.data.nesting, Number.POSITIVE_INFINITY, event.data.name);
    } else if (event.type === 'test:diagnostic') {
      const { nesting, message } = event.data;
      if (nesting > 0 || !OWN_TOTALS.test(message)) tell({ kind: 'note', text: message });
    } else if (event.type === 'test:pass' || event.type === 'test:fail') {
      const { nesting, details, skip, todo } = event.data;
      const name = [...started.slice(0, nesting), event.data.name].join(' > ');
      const isParent = details.type === 'suite' || hasChildren[nesting + 1] === true;
      hasChildren[nesting + 1] = false;
      hasChildren[nesting] = true;

      if (skip !== undefined || todo !== undefined) {
        const reason = [skip, todo].find((why) => typeof why === 'string' && why !== '');
        tell({ kind: 'skipped', name, reason: String(reason ?? 'no reason given') });
      } else if (event.type === 'test:pass') {
        if (!isParent) tell({ kind: 'passed', name });
      } else if (!isParent || !failedThroughChildren(event.data.details.error)) {
        const { error } = event.data.details;
        tell({ kind: 'failed', name, diagnostics: describe(error.cause ?? error) });
      }
    }
  }
  tell({ kind: 'complete' });
  yield '';
}

function failedThroughChildren(error: Error): boolean {
  return 'failureType' in error && error.failureType === 'subtestsFailed';
}

const INSPECTION = { depth: 8, maxStringLength: 5000 };

/** Message, stack and properties of what a test threw; node shows only the top of an assertion's two values. */
function describe(thrown: unknown): string {
  if (!(thrown instanceof AssertionError)) return inspect(thrown, INSPECTION);
  const { stack, expected, actual } = thrown;
  return `${stack}\n  expected: ${inspect(expected, INSPECTION)}\n  actual: ${inspect(actual, INSPECTION)}`;
}
