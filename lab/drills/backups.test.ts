/**
 * What docs/backups.md says of a restore is done here with its configuration and its commands: on Debian's PostgreSQL, with
 * a processor and a chain that know more than the database that was restored.
 */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { type Test, test } from 'tap';
import type { Address, LocalAccount } from 'viem';
import { openDatabase } from '../../src/db/database.ts';
import { migrate } from '../../src/db/migrate.ts';
import { formatUsd } from '../../src/lib/money.ts';
import { usdCoinAbi } from '../../src/sandbox/chain/fund.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { booksClosed } from '../../test/support/books.ts';
import { included, testChain, wallet } from '../../test/support/chain.ts';
import { testCheckout } from '../../test/support/checkout.ts';
import { type Child, startCommand } from '../../test/support/child.ts';
import {
  DEPOSIT_PATH,
  depositOf,
  land,
  mineSteadily,
  payDeposit,
  prepaidBalance,
  signDeposit,
} from '../../test/support/deposit.ts';
import { blocksOf, run, shell } from '../../test/support/documentation.ts';
import type { Gateway, Reply } from '../../test/support/gateway.ts';
import { missingProgram } from '../../test/support/missing-program.ts';
import { domainOf, HELLO, TTS, withCredential } from '../../test/support/prepaid.ts';
import { PROJECT } from '../../test/support/project.ts';
import { mp3 } from '../../test/support/stub-upstream.ts';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { until } from '../../test/support/until.ts';
import { PRICE, payFor, startX402Gateway, withPayment } from '../../test/support/x402.ts';

const { skip, chain } = await testChain();
/** Where Debian has PostgreSQL's server programs, which it puts into no path. */
const BIN = '/usr/lib/postgresql/15/bin';

/** Why tests with PostgreSQL's own programs are skipped; false where they are installed. */
const withoutPostgres: string | false =
  missingProgram(join(BIN, 'pg_basebackup'), '--version') ??
  missingProgram(join(BIN, 'postgres'), '--version') ??
  false;

/** PostgreSQL refuses to run as root. */
const AS_NOBODY = process.getuid?.() === 0 ? ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', '--'] : [];
const BACKUPS = '/var/backups/speechgate';
const RESTORED = '/var/lib/postgresql/restored';
/** Can be a deposit, and the price of 3000 characters of the dearer model too. */
const AMBIGUOUS = 108_000;
/** Can be a deposit only. */
const LATER = 900_000;
const OWN_AFFAIR = 5_000n;

test('docs/backups.md: a restore finds and books each missing payment once', {
  skip: skip || withoutPostgres,
}, async (t) => {
  const page = await blocksOf('docs/backups.md');
  const configuration = page.find(({ language }) => language === 'ini')?.code ?? '';
  const commands = page.filter(({ language }) => language === 'sh').map(({ code }) => code);
  const [backup = '', restore = '', find = '', book = '', audit = '', sums = '', ...more] = commands;
  t.strictSame(more, []);

  const postgres = await startDebianPostgres(t, (folder) => configuration.replaceAll(BACKUPS, join(folder, 'backups')));
  const here = (text: string) =>
    text.replaceAll(BACKUPS, join(postgres.folder, 'backups')).replaceAll(RESTORED, join(postgres.folder, 'restored'));
  const urls = { BACKUP_URL: postgres.url, RESTORED_URL: postgres.url };
  await postgres.run(`mkdir -p ${here(BACKUPS)}/wal`);
  const folder = await temporaryFolder(t);
  const checkout = await testCheckout(t);
  const env = { ...checkout.env, AUDIO_STORE: `file:${join(folder, 'audio')}`, LOG_LEVEL: 'info' };
  const gateway = await startX402Gateway(t, chain, env, { databaseUrl: postgres.url });
  const { payTo, facilitator, upstream } = gateway;
  await postgres.run(here(backup), urls);

  const funded = () => wallet(chain.client, 10_000_000n);
  const [payer, late, other, direct] = await Promise.all([funded(), funded(), funded(), funded()]);
  const stopMining = mineSteadily(t, chain);
  const complete = async (opened: string) => {
    const { pathname, search } = new URL(await checkout.pay(opened));
    await answered(gateway.call(pathname + search));
  };
  const buy = async (cents: number): Promise<string> => {
    await complete(await open(gateway, cents));
    const bought = gateway.db.selectFrom('top_up').select('account_id').where('amount_cents', '=', cents);
    return (await bought.executeTakeFirstOrThrow()).account_id;
  };
  const buyer = await buy(500);
  const spendCard = () => answered(gateway.call('/tts', { ...HELLO, headers: { 'x-credit-account': buyer } }));
  const spendPrepaid = async () =>
    answered(gateway.call(TTS, await withCredential(payer, domainOf(payTo), TTS, HELLO)));
  await answered(payDeposit(gateway, payer, 1_000_000));
  await Promise.all([spendCard(), spendPrepaid(), answered(payFor(gateway, direct))]);
  // Under way at the moment of the restore: a purchase, a deposit whose end is not known, a direct payment.
  const opened = await open(gateway, 600);
  facilitator.faults.settle({ broadcast: false, answer: 'error' });
  const unknown = await signDeposit(gateway, late, 200_000);
  const asked = await gateway.call(DEPOSIT_PATH, withPayment(depositOf(200_000), unknown));
  t.equal(asked.json.error.code, 'PAYMENT_OUTCOME_UNKNOWN');
  let speak = () => {};
  upstream.mode = (request, response) => {
    speak = () => mp3()(request, response);
  };
  const requests = upstream.requests.length;
  const running = payFor(gateway, other);
  await upstream.waitForRequests(requests + 1);
  await until(async () => (await states(gateway)).includes('reserved'));

  // A hold that is pending at the moment of the restore is voided after it.
  await booksClosed(gateway.db);
  const RESTORE_TO = (await clock(gateway)).toISOString().replace('Z', '+00:00');
  await until(async () => (await clock(gateway)).getTime() > new Date(RESTORE_TO).getTime());
  speak();
  const { paid: repetition } = await answered(running);
  upstream.mode = mp3();
  await complete(opened);
  const secondBuyer = await buy(700);
  const [session] = (await checkout.stripe.checkout.sessions.list({ limit: 100 })).data.filter(
    ({ metadata }) => metadata?.account_id === buyer,
  );
  await checkout.stripe.refunds.create({ payment_intent: String(session?.payment_intent), amount: 200 });
  await Promise.all([spendCard(), spendPrepaid(), answered(payFor(gateway, direct))]);
  await answered(payDeposit(gateway, payer, LATER));
  const { reply: deposited, paid: ambiguous } = await answered(payDeposit(gateway, other, AMBIGUOUS));
  await land(chain, unknown);
  await sendUsdc(direct, payTo, OWN_AFFAIR);
  await chain.client.mine({ blocks: 3 });
  stopMining();

  // The machine is lost, but for what was archived.
  await archived(gateway);
  await gateway.app.close();
  await postgres.run(`pg_ctl --pgdata=${postgres.data} --mode=immediate stop && rm -r ${postgres.data}`);
  await postgres.run(here(restore), { ...urls, RESTORE_TO });

  const settings = {
    ...env,
    ...{ DATABASE_URL: postgres.url, DATA_DIR: folder, X402_PAY_TO: payTo, X402_RPC_URL: chain.rpcUrl },
    ...{ X402_FACILITATOR_URL: facilitator.url, SPEECH_BASE_URL: upstream.url },
  };
  const npm = async (command: string) => {
    const child = shell(t, PROJECT, command, { ...settings, RESTORE_TO });
    return { code: await child.ended(), out: child.output() };
  };
  await until(() => leasesHaveEnded(postgres.url));
  const first = await npm(find);
  t.equal(first.code, 69, first.out);
  const bookedFirst = [
    'deposit 0.200000',
    'refund 2.000000',
    'settlement 0.000198',
    'top_up 6.000000',
    'top_up 7.000000',
  ];
  t.strictSame(bookedIn(first.out), bookedFirst, first.out);
  t.match(first.out, /^Transfers to the payees on the chain that belong to settled payments: 4$/m);
  t.match(first.out, /^Transfers without an authorization, .*: 1\n.*\n.* 0\.005000 /m);
  t.strictSame(
    [...first.out.matchAll(/ ([\d.]+) +(0x\w{40}) +(deposit|speech|either) +0x/g)].map(([, ...cells]) => cells),
    [
      ['0.000198', direct.address.toLowerCase(), 'speech'],
      [formatUsd(BigInt(LATER)), payer.address.toLowerCase(), 'deposit'],
      [formatUsd(BigInt(AMBIGUOUS)), other.address.toLowerCase(), 'either'],
    ],
  );

  // The rest while the service runs, with its own reconcilers at work.
  const again = await startX402Gateway(
    t,
    chain,
    { ...settings, RECONCILE_INTERVAL_MS: '200' },
    { databaseUrl: postgres.url },
  );
  const replayed = await again.call(TTS, repetition);
  t.strictSame([replayed.status, replayed.headers.get('x-idempotent-replay')], [200, 'true']);
  const transaction = JSON.parse(atob(deposited.headers.get('payment-response') ?? '')).transaction;
  const second = await npm(`${book} --deposit ${transaction}`);
  t.equal(second.code, 0, second.out);
  t.strictSame(bookedIn(second.out), [
    `deposit ${formatUsd(BigInt(AMBIGUOUS))}`,
    `deposit ${formatUsd(BigInt(LATER))}`,
    'settlement 0.000198',
  ]);
  const third = await npm(`${book} --deposit ${transaction}`);
  t.equal(third.code, 0, third.out);
  t.strictSame(bookedIn(third.out), []);
  t.equal((await again.call(DEPOSIT_PATH, ambiguous)).status, 409);

  // Everything that came in is there; what was spent after that moment is in the balances again.
  t.equal(await again.balance(buyer), 5_000_000n - PRICE - 2_000_000n);
  t.equal(await again.balance(secondBuyer), 7_000_000n);
  for (const [owner, amount] of [
    [payer, 1_000_000 + LATER - Number(PRICE)],
    [late, 200_000],
    [other, AMBIGUOUS],
  ] as const) {
    t.equal(await prepaidBalance(again, owner), amount);
  }
  const { rows } = await sql<{ sum: string }>`
    select sum(amount_micro_usd) from transfer where kind in ('settlement', 'deposit')`.execute(again.db);
  t.equal(BigInt(rows[0]?.sum ?? 0) + OWN_AFFAIR, await gateway.revenue());
  const audited = await npm(audit);
  t.equal(audited.code, 0, audited.out);

  await writeFile(join(folder, 'speechgate.log'), gateway.log.map((line) => JSON.stringify(line)).join('\n'));
  const summed = await run(t, folder, sums, { RESTORE_TO });
  t.strictSame(summed.trim().split('\n').sort(), [
    'card 0.000198 USD',
    `deposit ${formatUsd(BigInt(LATER + AMBIGUOUS))} USD`,
    'direct 0.000396 USD',
    'prepaid 0.000198 USD',
  ]);
});

/** What the command says that it has booked, without its accounts, in the order of their kinds. */
const bookedIn = (out: string): string[] =>
  [...out.matchAll(/^[0-9a-f-]{36} +(top_up|refund|settlement|deposit) +([\d.]+) /gm)]
    .map(([, kind, amount]) => `${kind} ${amount}`)
    .sort();

async function answered<Answer extends Reply | { readonly reply: Reply }>(call: Promise<Answer>): Promise<Answer> {
  const answer: Reply | { readonly reply: Reply } = await call;
  const { status, text } = 'reply' in answer ? answer.reply : answer;
  assert.equal(status, 200, text);
  return answer as Answer;
}

/** Opens a purchase, and tells where it is paid. */
async function open(gateway: Gateway, cents: number): Promise<string> {
  const { headers } = await gateway.call('/top-up', {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: `amount=${cents}`,
  });
  return headers.get('location') ?? assert.fail();
}

async function states({ db }: Gateway): Promise<string[]> {
  const rows = await db.selectFrom('x402_payment').select('state').execute();
  return rows.map(({ state }) => state);
}

/** What was under way at the moment of the restore is taken over once its leases have ended. */
async function leasesHaveEnded(url: string): Promise<boolean> {
  const db = openDatabase(url, { maxConnections: 1 });
  try {
    return (await sql`select from x402_payment where lease_until > now()`.execute(db)).rows.length === 0;
  } finally {
    await db.destroy();
  }
}

/** The database's. */
async function clock({ db }: Gateway): Promise<Date> {
  const { rows } = await sql<{ now: Date }>`select clock_timestamp() as now`.execute(db);
  return rows[0]?.now ?? assert.fail();
}

/** Waits until the server has archived what it has written so far. */
async function archived({ db }: Gateway): Promise<void> {
  const { rows } = await sql<{ file: string }>`select pg_walfile_name(pg_switch_wal()) as file`.execute(db);
  const file = rows[0]?.file ?? assert.fail();
  await until(async () => {
    const { rows: done } = await sql`select from pg_stat_archiver where last_archived_wal >= ${file}`.execute(db);
    return done.length > 0;
  });
}

/** Sends USDC as any wallet does, without an authorization. */
const sendUsdc = (from: LocalAccount, to: Address, amount: bigint) =>
  included(
    chain.client,
    chain.client.writeContract({
      account: from,
      address: chain.asset,
      abi: usdCoinAbi,
      functionName: 'transfer',
      args: [to, amount],
    }),
  );

/** Debian's server with these settings beside its defaults, in a folder of its own, with a database of the service. */
async function startDebianPostgres(t: Test, settings: (folder: string) => string) {
  const folder = await temporaryFolder(t);
  const data = join(folder, 'data');
  await startCommand(
    t,
    ['chown', AS_NOBODY.length > 0 ? '65534:65534' : String(process.getuid?.()), folder],
    {},
  ).ended();
  /** Runs a command of a shell as the one who runs the server; tells what it has printed. */
  const run = async (command: string, env: Record<string, string> = {}): Promise<string> => {
    const path = `${BIN}:${process.env.PATH}`;
    const child: Child = startCommand(t, [...AS_NOBODY, 'sh', '-euc', command], {
      cwd: '/',
      env: { LC_ALL: 'C', ...env, PATH: path },
    });
    const code = await child.ended();
    if (code !== 0) throw new Error(`${command}\nended with ${code}:\n${child.output()}`);
    return child.output();
  };
  t.teardown(() => run(`for data in ${folder}/*; do pg_ctl --pgdata="$data" --mode=immediate stop || true; done`));
  const port = await freePort();
  await run(`initdb --pgdata=${data} --username=speechgate --auth=trust --no-sync`);
  const own = [`port = ${port}`, "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", 'fsync = off'];
  await mkdir(data, { recursive: true });
  await writeFile(join(data, 'speechgate.conf'), `${[...own, settings(folder)].join('\n')}\n`, { mode: 0o644 });
  await run(`echo "include 'speechgate.conf'" >> ${data}/postgresql.conf`);
  await run(`pg_ctl --pgdata=${data} --log=${folder}/log --wait start`);
  const url = `postgres://speechgate@127.0.0.1:${port}/speechgate`;
  await run(`createdb --host=127.0.0.1 --port=${port} --username=speechgate speechgate`);
  await migrate(url);
  return { folder, data, url, run };
}
