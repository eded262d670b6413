import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { parse } from 'yaml';
import { rotateKeys } from '../../src/config/signing-keys.ts';
import { keepAuditResult } from '../../src/ledger/audit.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { testChain, wallet } from '../support/chain.ts';
import { testCheckout } from '../support/checkout.ts';
import { mineSteadily } from '../support/deposit.ts';
import { startMailServer } from '../support/mail-server.ts';
import { FLOWS } from '../support/paid-flows.ts';
import { bookDeposit } from '../support/prepaid.ts';
import { projectFile } from '../support/project.ts';
import { ALERTS } from '../support/prometheus.ts';
import { failing, startRpcNode } from '../support/rpc-node.ts';
import { runbook } from '../support/runbook.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { payFor, startX402Gateway } from '../support/x402.ts';

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}

const pathOf = (file: string) => fileURLToPath(projectFile(file));
const alerts: Alert[] = parse(await readFile(ALERTS, 'utf8')).groups.flatMap(({ rules }: { rules: Alert[] }) => rules);
const dashboard = JSON.parse(await readFile(pathOf('ops/grafana/speechgate.json'), 'utf8'));
const { chain, skip } = await testChain();

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly expr: string; readonly datasource: { readonly uid: string } }[];
}

test('each alert has a severity, a description and a section in the runbook', async (t) => {
  for (const { alert, labels, annotations } of alerts) {
    t.match(labels.severity, /^(critical|warning)$/, alert);
    t.match(annotations.summary, /\.$/, alert);
    t.equal(annotations.runbook_url, `docs/runbook.md#${alert.toLowerCase()}`);
  }
  const sections = await runbook();
  t.strictSame(sections.map(({ name }) => name).sort(), alerts.map(({ alert }) => alert).sort());
  for (const { name, text, blocks } of sections) {
    const parts = [...text.matchAll(/^\*\*(.+?):\*\*/gm)].map(([, part = '']) => part);
    t.equal(parts.join(', ').replace('Look and fix', 'Look, Fix'), 'Means, Callers see, Look, Fix, Fixed', name);
    t.ok(
      blocks.some(({ language }) => language === 'sh'),
      `${name} has commands`,
    );
  }
});

/** Names of metrics in expressions: what is no word of the language itself. */
const metricsIn = (expression: string): string[] => [
  ...new Set(expression.match(/\b(speechgate|nodejs|process)_[a-z0-9_]+/g) ?? []),
];

test('a loaded gateway exports every metric that alerts and dashboard use', { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const stored = rotateKeys(undefined, new Date());
  const until = new Date(Date.now() + 86_400_000).toISOString();
  const keys = stored.keys.map((key) => ({ ...key, validUntil: until }));
  const SIGNING_KEYS_FILE = join(folder, 'keys.json');
  await writeFile(SIGNING_KEYS_FILE, JSON.stringify({ keys }));
  const checkout = await testCheckout(t);
  const mail = await startMailServer(t);
  const node = await startRpcNode(t, chain.rpcUrl);
  const gateway = await startX402Gateway(
    t,
    chain,
    {
      ...checkout.env,
      SIGNING_KEYS_FILE,
      X402_RPC_URL: node.url,
      ...{ SMTP_URL: mail.url, FEEDBACK_FROM: 'from@speech.example', FEEDBACK_TO: 'to@speech.example' },
      RATE_LIMIT_MAX: '1000',
    },
    { worker: true },
  );
  mineSteadily(t, chain);
  const prepaid = privateKeyToAccount(generatePrivateKey());
  await bookDeposit(gateway.db, prepaid.address.toLowerCase(), 1_000_000n);
  const payers = {
    ...{ card: await gateway.fund(500), prepaid, checkout },
    direct: await wallet(chain.client, 100_000_000n),
  };
  for (const { run } of Object.values(FLOWS)) await run(gateway, payers);
  // One whose end only the chain can tell, while its node is away.
  gateway.facilitator.faults.settle({ broadcast: true, answer: 'reset' });
  const settlements = () => gateway.facilitator.calls.filter(({ endpoint }) => endpoint === 'settle').length;
  const before = settlements();
  node.falsehood = (call) => (settlements() > before ? failing(call) : undefined);
  t.equal((await payFor(gateway, payers.direct)).reply.status, 409);
  await gateway.app.reconcilers.turn();
  await keepAuditResult(gateway.db, 'books', 0);

  const scrape = (await gateway.app.admin.inject({ url: '/metrics', headers: { host: 'localhost' } })).body;
  const shown = new Set([...scrape.matchAll(/^([a-z0-9_]+)(?:\{| )/gm)].map(([, name]) => name));
  const expressions = [
    ...alerts.map(({ expr }) => expr),
    ...dashboard.panels.flatMap(({ targets = [] }: Panel) => targets.map(({ expr }) => expr)),
  ];
  const named = [...new Set(expressions.flatMap(metricsIn))];
  t.ok(named.length > 25);
  // Only refusals make these, of which there are none here.
  const known = new Metrics();
  known.rateLimitRefused('account');
  known.shed('work');
  const ofRefusals = ['speechgate_rate_limit_refusals_total', 'speechgate_shed_requests_total'];
  const possible = await known.scrape();
  const others = named.filter((name) => !shown.has(name) && !(ofRefusals.includes(name) && possible.includes(name)));
  t.strictSame(others, []);
  t.match(scrape, /^speechgate_payments_in_doubt 1$/m);
  for (const flow of ['card', 'prepaid', 'direct'])
    t.match(scrape, new RegExp(`^speechgate_revenue_micro_usd_total\\{flow="${flow}"\\} [1-9]`, 'm'));
  t.match(scrape, /^speechgate_upstream_cost_micro_usd_total\{upstream="default"\} [1-9]/m);
});
