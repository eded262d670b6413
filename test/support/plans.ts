import pg from 'pg';

/** A node of an executed plan, as PostgreSQL tells it in JSON. */
export interface PlanNode {
  readonly 'Node Type': string;
  readonly Operation?: string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Join Type'?: string;
  readonly 'Parent Relationship'?: string;
  /** Of one loop on average, as are the rows that were removed. */
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Rows Removed by Index Recheck'?: number;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly PlanNode[];
}

/** A statement that was executed, and how. */
export interface ExecutedPlan {
  readonly text: string;
  readonly root: PlanNode;
}

const PLAN = /^duration: \S+ ms {2}plan:\n/;
let listener: ((plan: ExecutedPlan) => void) | undefined;
let isListening = false;

/**
 * Has the server tell the plan of each statement in this database, with what it really did, and tells it to the
 * function; what the driver is asked to send, and how, does not matter. For connections that are made from now on. Takes
 * a superuser. @param planCacheMode PostgreSQL's setting of that name
 */
export async function watchPlans(
  url: string,
  planCacheMode: 'auto' | 'force_generic_plan',
  told: (plan: ExecutedPlan) => void,
): Promise<void> {
  const settings = {
    session_preload_libraries: 'auto_explain',
    'auto_explain.log_min_duration': '0',
    'auto_explain.log_analyze': 'on',
    'auto_explain.log_buffers': 'on',
    'auto_explain.log_timing': 'off',
    'auto_explain.log_format': 'json',
    'auto_explain.log_level': 'notice',
    plan_cache_mode: planCacheMode,
  };
  const client = new pg.Client(url);
  await client.connect();
  const { rows } = await client.query('select quote_ident(current_database()) as name');
  for (const [name, value] of Object.entries(settings)) {
    await client.query(`alter database ${rows[0].name} set ${name} = '${value}'`);
  }
  await client.end();
  listener = told;
  listen();
}

interface Connecting extends pg.Connection {
  connect(...where: unknown[]): void;
}

/** Each connection of this process listens to notices, whoever makes it. */
function listen(): void {
  if (isListening) return;
  isListening = true;
  // Its types leave the method out.
  const prototype = pg.Connection.prototype as unknown as Connecting;
  const { connect } = prototype;
  prototype.connect = function (...where) {
    this.on('notice', (notice: { message?: string }) => {
      const { message = '' } = notice;
      if (!PLAN.test(message)) return;
      const { 'Query Text': text, Plan: root } = JSON.parse(message.replace(PLAN, ''));
      listener?.({ text, root });
    });
    return connect.apply(this, where);
  };
}

/** The node and all below it. */
export function* nodesOf(node: PlanNode): Generator<PlanNode> {
  yield node;
  for (const child of node.Plans ?? []) yield* nodesOf(child);
}

/** What the statement writes, as `Insert transfer`. */
export const writesOf = ({ root }: ExecutedPlan): string[] =>
  [...nodesOf(root)].flatMap((node) =>
    node['Node Type'] === 'ModifyTable' ? [`${node.Operation} ${node['Relation Name']}`] : [],
  );
