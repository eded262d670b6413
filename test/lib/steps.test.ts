/** Every step of the code has a proof that kills the process there. */

import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import ts from 'typescript';
import { KILL_POINTS } from '../support/kills.ts';
import { projectFile } from '../support/project.ts';

const SOURCES = fileURLToPath(projectFile('src/'));
const FUNCTION = 'testPoint';

/** A place of the code between two effects, by the name that its `testPoint` has. */
interface Step {
  readonly name: string;
  /** Below src/, with its line. */
  readonly place: string;
}

/**
 * Every step of src/. A template stands for each text that the type of what it fills in allows, as far as the file itself
 * tells that type.
 * @throws for a name that can't be told so
 */
const readSteps = (): Step[] =>
  readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && file !== 'lib/test-point.ts')
    .sort()
    .flatMap((file) => stepsIn(join(SOURCES, file)).map(({ name, line }) => ({ name, place: `${file}:${line}` })));

/** The steps of one file, which may be anywhere. */
function stepsIn(path: string): { name: string; line: number }[] {
  const text = ts.sys.readFile(path) ?? '';
  if (!text.includes(`${FUNCTION}(`)) return [];
  const steps: { name: string; line: number }[] = [];
  const program = once(() => ts.createProgram([path], { noResolve: true, strict: true, types: [] }));
  const visit = (node: ts.Node, source: ts.SourceFile): void => {
    if (ts.isCallExpression(node) && node.expression.getText(source) === FUNCTION) {
      const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
      for (const name of namesOf(node.arguments[0], program)) steps.push({ name, line });
    }
    ts.forEachChild(node, (child) => visit(child, source));
  };
  const source = text.includes(`${FUNCTION}(\``) ? program().getSourceFile(path) : undefined;
  const parsed = source ?? ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  visit(parsed, parsed);
  return steps;
}

function namesOf(argument: ts.Node | undefined, program: () => ts.Program): string[] {
  if (argument && ts.isStringLiteral(argument)) return [argument.text];
  if (!argument || !ts.isTemplateExpression(argument))
    throw new Error(`not the name of a step: ${argument?.getText()}`);
  return argument.templateSpans.reduce(
    (names, span) => {
      const texts = textsOf(program().getTypeChecker().getTypeAtLocation(span.expression));
      if (!texts) throw new Error(`the file does not tell what fills in ${argument.getText()}`);
      return names.flatMap((name) => texts.map((text) => name + text + span.literal.text));
    },
    [argument.head.text],
  );
}

function textsOf(type: ts.Type): string[] | undefined {
  const types = type.isUnion() ? type.types : [type];
  const texts = types.map((each) => (each.isStringLiteral() ? each.value : undefined));
  return texts.some((text) => text === undefined) ? undefined : (texts as string[]);
}

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

const PROJECT = projectFile('');

const steps = readSteps();
const kills = Object.values(KILL_POINTS).flat() as string[];

test('every step of the code has a proof that kills the process there', async (t) => {
  const unproved = steps.filter(({ name }) => !kills.includes(name)).map(({ name, place }) => `${name} (${place})`);
  t.strictSame(unproved, []);
});

test('no proof names a step that does not exist', async (t) => {
  const names = new Set(steps.map(({ name }) => name));
  t.strictSame(
    kills.filter((kill) => !names.has(kill)),
    [],
  );
});

test('each step name stands at one place in the code', async (t) => {
  const places = new Map<string, string[]>();
  for (const { name, place } of steps) places.set(name, [...(places.get(name) ?? []), place]);
  t.strictSame(
    [...places].filter(([, of]) => of.length > 1),
    [],
  );
});

test('each proof takes its cases from the shared list', async (t) => {
  for (const proof of Object.keys(KILL_POINTS)) {
    const source = await readFile(new URL(proof, PROJECT), 'utf8');
    t.match(source, new RegExp(`killCases(<[^;]*?>)?\\(\\s*'${proof}'`), proof);
  }
});
