import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'tap';
import ts from 'typescript';

const ROOT = new URL('../../', import.meta.url).pathname;

/** The one folder whose code names the table. */
const OWNERS: Readonly<Record<string, string>> = {
  account: 'src/ledger/',
  audit_result: 'src/ledger/',
  gateway_process: 'src/ledger/',
  instance: 'src/ledger/',
  lost_answer: 'src/ledger/',
  prepaid_nonce: 'src/ledger/',
  reversal: 'src/ledger/',
  transfer: 'src/ledger/',
  clawback: 'src/top-up/',
  processor_list: 'src/top-up/',
  top_up: 'src/top-up/',
  x402_payee: 'src/x402/',
  x402_payment: 'src/x402/',
  job: 'src/jobs/',
  worker: 'src/jobs/',
  feedback: 'src/feedback/',
  rate_window: 'src/limits/',
  reconciler: 'src/reconcile/',
  operator_action: 'src/operators/',
  paused_flow: 'src/operators/',
};
/** Tables that only the release before still uses. */
const FORMER = ['checkout_sweep'];
/** What compares the tables with each other. It only reads. */
const AUDITS = ['src/ledger/audit/', 'src/audit/', 'src/report/'];

const KYSELY_CALL =
  /^(selectFrom|insertInto|updateTable|deleteFrom|mergeInto|from|using|\w*[jJ]oin(Lateral)?|\w*[aA]pply|table|ref|raw|id|query)$/;
const SQL_TAGS = /^(sql|fragment|statement)$/;
const INSERT_TRANSFER = /insert\s+into\s+(\w+\.)?"?transfer\b|insertInto\(['"`](\w+\.)?transfer\b/gi;
const WRITES =
  /\b(?:insert\s+into|update|delete\s+from|truncate(?:\s+table)?|merge\s+into)\s+(?:only\s+)?(?:"?\w+"?\.)?"?(\w+)/g;

const NAMES = new RegExp(`\\b(${Object.keys(OWNERS).join('|')})\\b`);

interface Use {
  readonly table: string;
  readonly file: string;
  readonly isWrite: boolean;
}

/** Every place where the code of a file names a table to the database. */
function usesIn(file: string, source: string): Use[] {
  const uses: Use[] = [];
  const add = (text: string, isWrite: (table: string) => boolean) => {
    for (const [word] of text.replaceAll(/'[^']*'(?!::regclass)/g, "''").matchAll(/[a-z_][a-z0-9_]*/g)) {
      if (Object.hasOwn(OWNERS, word)) uses.push({ table: word, file, isWrite: isWrite(word) });
    }
  };
  if (!NAMES.test(source)) return uses;
  const visit = (node: ts.Node): void => {
    if (ts.isTaggedTemplateExpression(node) && SQL_TAGS.test(node.tag.getText())) {
      const text = textOf(node.template).toLowerCase();
      const written = [...text.matchAll(WRITES)].map(([, table]) => table);
      add(text, (table) => written.includes(table));
    } else if (ts.isCallExpression(node)) {
      const called = ts.isPropertyAccessExpression(node.expression) ? node.expression.name.text : '';
      if (KYSELY_CALL.test(called)) {
        for (const text of node.arguments.flatMap(textsIn))
          add(text, () => /^(insert|update|delete|merge)/.test(called));
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true));
  return uses;
}

const textsIn = (argument: ts.Expression): string[] => {
  if (ts.isArrayLiteralExpression(argument)) return argument.elements.flatMap(textsIn);
  if (ts.isConditionalExpression(argument)) return [argument.whenTrue, argument.whenFalse].flatMap(textsIn);
  if (ts.isParenthesizedExpression(argument) || ts.isAsExpression(argument)) return textsIn(argument.expression);
  if (ts.isStringLiteral(argument)) return [argument.text];
  return ts.isTemplateLiteral(argument) ? [textOf(argument)] : [];
};

/** A template's own words; what is put in between is looked at by itself. */
const textOf = (template: ts.TemplateLiteral): string =>
  ts.isNoSubstitutionTemplateLiteral(template)
    ? template.text
    : [template.head.text, ...template.templateSpans.map(({ literal }) => literal.text)].join(' ? ');

const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .map((name) => `src/${name.replaceAll('\\', '/')}`)
  .filter((name) => name.endsWith('.ts') && !name.startsWith('src/contract/'));
const sources = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));

const isAudit = (file: string) => AUDITS.some((folder) => file.startsWith(folder));

test('each table is named by the code of one folder, and by the audits, which only read', async () => {
  const uses = [...sources].flatMap(([file, source]) => usesIn(file, source));
  const strays = uses.filter(
    ({ table, file, isWrite }) => !(isAudit(file) ? !isWrite : file.startsWith(OWNERS[table] as string)),
  );
  assert.deepEqual(strays, []);
  for (const [table, folder] of Object.entries(OWNERS)) {
    assert.ok(
      uses.some((use) => use.table === table && use.file.startsWith(folder)),
      `${folder} uses ${table}`,
    );
  }
});

test('every table of the schema has its folder', async () => {
  const types = readFileSync(join(ROOT, 'db/tables.ts'), 'utf8');
  const schema = /export interface DB \{([^}]*)\}/.exec(types)?.[1] ?? '';
  const tables = [...schema.matchAll(/^ {2}(\w+):/gm)].map(([, table]) => table);
  assert.deepEqual(tables.sort(), [...Object.keys(OWNERS), ...FORMER].sort());
});

test('a transfer is inserted by one fragment, in src/ledger/transfer.ts', async () => {
  const spelled = [...sources].flatMap(([file, source]) =>
    Array(source.match(INSERT_TRANSFER)?.length ?? 0).fill(file),
  );
  assert.deepEqual(spelled, ['src/ledger/transfer.ts']);
});

const NAMINGS = [
  ['in the text of a statement', 'sql`select 1 from account, x`'],
  ['quoted', 'statement<Row>`select x from y join "account" a on true`'],
  ['in a fragment between others', ['fragment`', '{a} ', '{b} from account`'].join('$')],
  ['in a raw text with a value', ['sql.raw(`from account where ', '{x}`)'].join('$')],
  ['in a list of tables', "db.selectFrom(['x', 'account'])"],
  ['as the name of a class of the database', "sql`select 'account'::regclass`"],
  ['in a call of the query builder', "db.selectFrom('account as payer').select('id')"],
  ['in a join of the query builder', "query.innerJoin('account', 'account.id', 'x.id')"],
  ['in a lateral join of the query builder', "query.crossJoinLateral('account')"],
  ['beside an update of the query builder', "db.updateTable('x').from('account')"],
  ['beside a delete of the query builder', "db.deleteFrom('x').using(['account'])"],
  ['where one of two is chosen', "db.selectFrom((isX ? 'x' : 'account') as 'x')"],
  ['as a raw name', "sql.table('account')"],
] as const;

for (const [how, source] of NAMINGS) {
  test(`a table is seen ${how}`, async () => {
    assert.ok(usesIn('src/x.ts', source).some(({ table }) => table === 'account'));
  });
}

test('a write is told from a read, and a kind from a table', async () => {
  assert.deepEqual(usesIn('src/x.ts', "sql`update account set kind = 'job' from worker`"), [
    { table: 'account', file: 'src/x.ts', isWrite: true },
    { table: 'worker', file: 'src/x.ts', isWrite: false },
  ]);
  assert.ok(usesIn('src/x.ts', "db.deleteFrom('worker')").every(({ isWrite }) => isWrite));
  for (const text of [
    'update only worker set x = 1',
    'INSERT INTO public.worker values (1)',
    'truncate table "worker"',
  ]) {
    assert.deepEqual(
      usesIn('src/x.ts', `sql\`${text}\``).map(({ isWrite }) => isWrite),
      [true],
      text,
    );
  }
});
