import { type ExecutedPlan, nodesOf, type PlanNode } from './plans.ts';

/** Tables that stay small however long the service runs, and may be read whole. */
const SMALL: Readonly<Record<string, string>> = {
  instance: 'one row',
  processor_list: 'a row for each list',
  paused_flow: 'a row for each flow that is paused',
  audit_result: 'a row for each kind of audit',
  reconciler: 'a row for each reconciler',
  x402_payee: 'a row for each payee',
  schema_migration: 'a row for each migration',
  schema_migration_lock: 'one row',
  _private_jobs: 'of the queue: a row for each job and mail that waits or runs',
  _private_tasks: 'a row for each task of the queue',
  _private_job_queues: 'a row for each named queue, of which there is none',
  _private_known_crontabs: 'a row for each entry of the crontab, of which there is none',
};

/** Indexes of what waits or runs, of which each row may be looked at, whether or not something is to be done. */
const UNDER_WAY: Readonly<Record<string, string>> = {
  job_queued: 'jobs that are due, each held against its entry in the queue',
  job_processing: 'jobs that run, of which each is within its lease or not',
  feedback_unmailed: 'feedback that waits for its mail, each held against its entry in the queue',
};

/** What a scan may read beside twice what is used of it. */
const SPARE_ROWS = 20;

const rowsOut = (node: PlanNode): number => node['Actual Rows'] * node['Actual Loops'];
const rowsRead = (node: PlanNode): number =>
  (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)) *
  node['Actual Loops'];

const isScan = (node: PlanNode): boolean =>
  /(Seq|Index|Index Only|Bitmap Heap|Tid|Tid Range|Sample) Scan$/.test(node['Node Type']);
const isSmall = (table: string): boolean => table in SMALL || table.startsWith('pg_');
const isJoin = (node: PlanNode): boolean => /^(Nested Loop|Hash Join|Merge Join)$/.test(node['Node Type']);
/** What goes into these is used, whatever comes out: sums, and rows that are written. */
const uses = (node: PlanNode): boolean => /Aggregate|ModifyTable|SetOp|Group/.test(node['Node Type']);
const isOfItsOwn = (node: PlanNode): boolean => /^(InitPlan|SubPlan)$/.test(node['Parent Relationship'] ?? '');

/** What is wrong with how a statement has read a table, in words. */
export interface Fault {
  readonly table: string;
  readonly text: string;
}

/** Empty when nothing is wrong. The statements of the queue's package are its own affair. */
export function faultsOf(plan: ExecutedPlan): Fault[] {
  if (plan.text.includes('"graphile_worker".')) return [];
  return [...wholeTables(plan.root), ...wastedRows(plan.root, rowsOut(plan.root))];
}

function wholeTables(root: PlanNode): Fault[] {
  return [...nodesOf(root)].flatMap((node) => {
    const table = node['Relation Name'] ?? '';
    return node['Node Type'].endsWith('Seq Scan') && !isSmall(table) ? [{ table, text: `reads all of ${table}` }] : [];
  });
}

/**
 * Each scan is held against the rows that leave the joins, sorts and limits above it, up to where rows are summed or
 * written.
 * @param used how many of the node's rows are used above it
 */
function wastedRows(node: PlanNode, used: number): Fault[] {
  const table = node['Relation Name'] ?? '';
  if (isScan(node)) {
    const read = rowsRead(node);
    const by = node['Index Name'] ?? node.Plans?.[0]?.['Index Name'] ?? node['Node Type'];
    const isWaste = read > 2 * used + SPARE_ROWS && !isSmall(table) && !(by in UNDER_WAY);
    return isWaste ? [{ table, text: `reads ${read} rows of ${table} by ${by} and uses ${used}` }] : [];
  }
  return (node.Plans ?? []).flatMap((child) => wastedRows(child, usedOf(node, child, used)));
}

function usedOf(node: PlanNode, child: PlanNode, used: number): number {
  if (isOfItsOwn(child) || uses(node)) return rowsOut(child);
  // Whether there is a partner is what an outer row asks.
  const asks =
    isJoin(node) && /^(Semi|Anti)$/.test(node['Join Type'] ?? '') && child['Parent Relationship'] === 'Inner';
  if (asks) return Math.max(used, ...(node.Plans ?? []).map(rowsOut).slice(0, 1));
  return Math.min(used, rowsOut(node));
}
