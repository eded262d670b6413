import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { projectFile } from './project.ts';

/** What the templates of ops/helm use of Go's language and Helm's functions. Anything else is an error. */
type Node = { readonly text: string } | { readonly print: string } | Block;

interface Block {
  readonly block: 'if' | 'range' | 'define';
  readonly head: string;
  readonly body: Node[];
  readonly other: Node[];
}

type Scope = Readonly<Record<string, unknown>>;

// biome-ignore lint/suspicious/noExplicitAny: manifests have no types; what tests need of them they assert.
type Manifest = any;

const TAG = /\{\{(-?)\s*(.*?)\s*(-?)\}\}/gs;

/** The objects that the chart makes of its values, which these replace in part. */
export async function renderChart(values: Record<string, Record<string, unknown>> = {}): Promise<Manifest[]> {
  const folder = projectFile('ops/helm/templates/');
  const names = (await readdir(folder)).sort();
  const files = await Promise.all(
    names.map(async (name) => parseTemplate(await readFile(new URL(name, folder), 'utf8'))),
  );
  const defaults = parse(await readFile(projectFile('ops/helm/values.yaml'), 'utf8'));
  for (const [name, given] of Object.entries(values)) Object.assign(defaults[name], given);
  const defined = new Map<string, Node[]>();
  for (const node of files.flat())
    if ('block' in node && node.block === 'define') defined.set(text(node.head), node.body);
  const root = { Values: defaults };
  return files.flatMap((nodes) => {
    const documents = parseAllDocuments(render(nodes, { '.': root, $: root }, defined));
    return documents.flatMap((document) => {
      if (document.errors[0]) throw document.errors[0];
      return document.toJS() ?? [];
    });
  });
}

function parseTemplate(source: string): Node[] {
  const root: Node[] = [];
  const open: { readonly node: Block; target: Node[] }[] = [];
  const target = () => open.at(-1)?.target ?? root;
  let at = 0;
  let trims = false;
  const add = (until: number, trimsEnd: boolean) => {
    const part = source.slice(at, until);
    const started = trims ? part.trimStart() : part;
    target().push({ text: trimsEnd ? started.trimEnd() : started });
  };
  for (const match of source.matchAll(TAG)) {
    const [whole, left, action = '', right] = match;
    add(match.index, left === '-');
    at = match.index + whole.length;
    trims = right === '-';
    const [, word = '', head = ''] = /^(\w+)\b\s*(.*)$/s.exec(action) ?? [];
    if (word === 'if' || word === 'range' || word === 'define') {
      const node: Block = { block: word, head, body: [], other: [] };
      target().push(node);
      open.push({ node, target: node.body });
    } else if (word === 'else') {
      const block = open.at(-1);
      if (!block || head) throw new Error(`unknown: ${action}`);
      block.target = block.node.other;
    } else if (word === 'end') open.pop();
    else target().push({ print: action });
  }
  add(source.length, false);
  if (open.length > 0) throw new Error('a block has no end');
  return root;
}

function render(nodes: readonly Node[], scope: Scope, defined: ReadonlyMap<string, Node[]>): string {
  const value = (expression: string) =>
    evaluate(expression, scope, (name, dot) => {
      const body = defined.get(name);
      if (!body) throw new Error(`there is no template ${name}`);
      return render(body, { '.': dot, $: dot }, defined);
    });
  return nodes
    .map((node): string => {
      if ('text' in node) return node.text;
      if ('print' in node) return String(value(node.print));
      const { block, head, body, other } = node;
      if (block === 'define') return '';
      if (block === 'if') return render(value(head) ? body : other, scope, defined);
      const [, key = '', each = '', list = ''] = /^(\$\w+), (\$\w+) := (.+)$/.exec(head) ?? [];
      const entries = Object.entries(value(list) as object).sort();
      return entries
        .map(([name, item]) => render(body, { ...scope, '.': item, [key]: name, [each]: item }, defined))
        .join('');
    })
    .join('');
}

type Include = (name: string, dot: unknown) => string;

function evaluate(expression: string, scope: Scope, include: Include): unknown {
  const [first = '', ...others] = expression.split(' | ');
  return others.reduce(
    (piped: unknown, command) => call(command, scope, include, [piped]),
    call(first, scope, include, []),
  );
}

function call(command: string, scope: Scope, include: Include, piped: readonly unknown[]): unknown {
  const [name = '', ...words] = command.match(/"[^"]*"|\S+/g) ?? [];
  if (words.length === 0 && piped.length === 0) return operand(name, scope);
  const [one, two, ...more] = [...words.map((word) => operand(word, scope)), ...piped];
  const given = [one, two, ...more];
  switch (name) {
    case 'include':
      return include(String(one), two);
    case 'toYaml':
      return stringify(one).trimEnd();
    case 'nindent':
      return `\n${two}`.replaceAll('\n', `\n${' '.repeat(Number(one))}`);
    case 'quote':
      return JSON.stringify(one);
    case 'sha256sum':
      return createHash('sha256').update(String(one)).digest('hex');
    case 'eq':
      return one === two;
    case 'dict':
      return Object.fromEntries(given.flatMap((key, at) => (at % 2 === 0 ? [[key, given[at + 1]]] : [])));
    default:
      throw new Error(`unknown: ${command}`);
  }
}

const text = (literal: string): string => JSON.parse(literal);

function operand(word: string, scope: Scope): unknown {
  if (word.startsWith('"')) return text(word);
  if (/^\d+$/.test(word)) return Number(word);
  const [, variable = '', path = ''] = /^(\$\w*|)((?:\.\w+)*\.?)$/.exec(word) ?? [];
  if (variable === '' && path === '') throw new Error(`unknown: ${word}`);
  const names = path.split('.').filter(Boolean);
  return names.reduce(
    (object: unknown, name) => {
      const value = (object as Record<string, unknown>)[name];
      if (value === undefined) throw new Error(`${word} has no value`);
      return value;
    },
    scope[variable === '' ? '.' : variable],
  );
}
